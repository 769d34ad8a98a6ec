-- The job that a request was a run of. Gateways that know nothing of jobs leave the column out.
alter table settlements add column job_id uuid;
alter table rejections add column job_id uuid;

-- Few requests are runs of jobs.
create index settlements_job on settlements (job_id, admitted_at desc, id desc) where job_id is not null;
create index rejections_job on rejections (job_id, refused_at desc, id desc) where job_id is not null;
