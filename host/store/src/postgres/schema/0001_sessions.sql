-- Sessions and their lines. Lines are bytes including the line break, so that their concatenation is the
-- session file.
create table @.sessions (
    id          text primary key,
    cwd         text not null,
    -- The handle that created it, to recognize a repeated insert.
    founder     text not null,
    created_at  timestamptz not null default clock_timestamp(),
    changed_at  timestamptz not null default clock_timestamp(),
    -- Number of the next line; the header is number 0.
    next_seq    bigint not null,
    -- Fencing token, incremented with every lease. Lines are accepted with the newest only.
    fence       bigint not null default 0,
    -- The current lease and its expiry by the clock of this server; null without a lease.
    hold        text,
    expires_at  timestamptz not null default clock_timestamp()
) with (fillfactor = 70);
create index sessions_by_folder on @.sessions (cwd, changed_at desc);

create table @.entries (
    session  text not null references @.sessions (id),
    seq      bigint not null,
    -- Fencing token of the lease that wrote it.
    fence    bigint not null,
    line     bytea not null,
    crc      bigint not null,
    primary key (session, seq)
);
