-- Sessions and their lines. A line is kept as bytes, with its line break, so that a session read back is
-- the file it would have been.
create table @.sessions (
    id          text primary key,
    cwd         text not null,
    -- Who wrote it first, so that the same attempt asked twice is not taken for two.
    founder     text not null,
    created_at  timestamptz not null default clock_timestamp(),
    changed_at  timestamptz not null default clock_timestamp(),
    -- The number of the next line; the header is number 0.
    next_seq    bigint not null,
    -- Grows with every hold. A line is taken only from the hold that has the newest.
    fence       bigint not null default 0,
    -- Who has the session, and until when by the clock of this server; null while nobody has.
    hold        text,
    expires_at  timestamptz not null default clock_timestamp()
) with (fillfactor = 70);
create index sessions_by_folder on @.sessions (cwd, changed_at desc);

create table @.entries (
    session  text not null references @.sessions (id),
    seq      bigint not null,
    -- The hold that wrote it.
    fence    bigint not null,
    line     bytea not null,
    crc      bigint not null,
    primary key (session, seq)
);
