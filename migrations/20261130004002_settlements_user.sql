-- A user's requests.
create index settlements_user on settlements (user_id, admitted_at desc, id desc);
