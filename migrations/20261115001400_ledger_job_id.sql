-- The job that a request was a run of. Gateways that know nothing of jobs leave the column out.
alter table settlements add column job_id uuid;
alter table rejections add column job_id uuid;
