-- Requests that were refused for one reason.
create index rejections_code on rejections (code, refused_at desc, id desc);
