-- What engines keep: values by key, each engine in a namespace of its own, and bytes by their SHA-256.
create table @.engine_values (
    engine  text not null,
    key     bytea not null,
    value   bytea not null,
    primary key (engine, key)
);

create table @.blobs (
    handle  text primary key,
    bytes   bytea not null
);
