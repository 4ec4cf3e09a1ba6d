-- The queue for a session, and its queued messages.
create table @.waiters (
    ticket     bigint generated always as identity primary key,
    session    text not null references @.sessions (id),
    hold       text not null unique,
    polled_at  timestamptz not null default clock_timestamp()
);
create index waiters_by_session on @.waiters (session, ticket);

create table @.letters (
    ticket      bigint generated always as identity,
    session     text not null references @.sessions (id),
    id          text not null,
    message     bytea not null,
    -- The handle that will deliver it, and until when no other may.
    keeper      text not null,
    expires_at  timestamptz not null,
    primary key (session, id)
);
