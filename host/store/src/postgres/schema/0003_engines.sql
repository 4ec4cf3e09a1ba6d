-- Engine stores: values by engine and key, and blobs by their SHA-256.
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
