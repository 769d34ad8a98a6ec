-- What people look for in the ledger: the few that did not end well, a model's, a user's, those with a tag, those refused for
-- one reason.
create index settlements_outcome on settlements (outcome, admitted_at desc, id desc) where outcome <> 'completed';
create index settlements_model on settlements (model, admitted_at desc, id desc);
create index settlements_user on settlements (user_id, admitted_at desc, id desc);
create index settlements_tags on settlements using gin (tags jsonb_path_ops) where tags <> '{}';
create index rejections_code on rejections (code, refused_at desc, id desc);
create index rejections_user on rejections (user_id, refused_at desc, id desc);
