-- A user's refused requests.
create index rejections_user on rejections (user_id, refused_at desc, id desc);
