-- The list of all keys, the newest first. Not made concurrently: that waits for whoever waits for the lock on migrations, such
-- as another gateway that starts, which waits for this. Nobody but writers of keys waits, below a second for 200,000 of them.
create index keys_created_at on keys (created_at desc, id desc);
