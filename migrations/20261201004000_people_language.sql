-- The language that a person reads the console in, as a BCP 47 tag; absent: the one that their browser asks for.
alter table people
    add column language text check (language in ('en', 'zh-Hans'));
