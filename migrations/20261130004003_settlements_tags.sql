-- Requests with a tag.
create index settlements_tags on settlements using gin (tags jsonb_path_ops) where tags <> '{}';
