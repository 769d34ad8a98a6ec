-- A model's requests.
create index settlements_model on settlements (model, admitted_at desc, id desc);
