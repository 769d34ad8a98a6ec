-- What was noted stays as it was noted, whoever is connected as the program: whoever must change it has to take the trigger
-- away first, which is theirs to explain.
create function refuse_audit_change() returns trigger
language plpgsql as $$
begin
    raise exception 'the audit log is append-only' using errcode = 'integrity_constraint_violation';
end
$$;

create trigger audit_log_append_only before update or delete on audit_log
    for each row execute function refuse_audit_change();
create trigger audit_log_not_emptied before truncate on audit_log
    for each statement execute function refuse_audit_change();
