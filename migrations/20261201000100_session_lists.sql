-- What a person sees of their sessions, lifted from the sealed data. Absent in rows that older consoles write.
alter table sessions
    -- Names the session on pages: its id is what the browser holds.
    add column public_id uuid,
    add column signed_in_at timestamptz,
    -- To the minute: a page costs no write.
    add column seen_at timestamptz,
    add column peer text,
    add column user_agent text;

create unique index sessions_public_id on sessions (public_id);
