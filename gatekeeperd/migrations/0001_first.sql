-- One schema for SQLite and PostgreSQL: only TEXT and BIGINT. Times are milliseconds since 1970, flags are 0 or 1, lists are
-- JSON. Tokens of any kind are stored as SHA-256 hashes, cookies encrypted.

CREATE TABLE tokens (
    id TEXT PRIMARY KEY,
    tenant TEXT NOT NULL,
    operator BIGINT NOT NULL,
    hash TEXT NOT NULL UNIQUE,
    created_at BIGINT NOT NULL
);

CREATE TABLE grants (
    jti TEXT PRIMARY KEY,
    hash TEXT NOT NULL UNIQUE,
    tenant TEXT NOT NULL,
    operator_id TEXT NOT NULL,
    origin_session_id TEXT,
    allowed_domains TEXT NOT NULL,
    issued_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    single_use BIGINT NOT NULL,
    consumed_at BIGINT,
    consumed_by TEXT
);
CREATE INDEX grants_by_tenant ON grants (tenant, issued_at);

CREATE TABLE credentials (
    id TEXT PRIMARY KEY,
    tenant TEXT NOT NULL,
    domain TEXT NOT NULL,
    cookies_encrypted TEXT NOT NULL,
    key_id TEXT NOT NULL,
    cookie_count BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    last_refreshed_at BIGINT NOT NULL,
    last_injected_at BIGINT,
    grant_scope TEXT NOT NULL,
    UNIQUE (tenant, domain)
);

CREATE TABLE sessions (
    id TEXT PRIMARY KEY,
    tenant TEXT NOT NULL,
    kind TEXT NOT NULL,
    credential_mode TEXT NOT NULL,
    domains TEXT NOT NULL,
    record TEXT NOT NULL,
    state TEXT NOT NULL,
    place TEXT NOT NULL,
    instance TEXT NOT NULL,
    started_at BIGINT NOT NULL,
    ended_at BIGINT,
    end_reason TEXT,
    close_requested BIGINT NOT NULL
);
CREATE INDEX sessions_by_tenant ON sessions (tenant, started_at);
CREATE INDEX sessions_by_state ON sessions (state, place);

CREATE TABLE audit (
    id TEXT PRIMARY KEY,
    at BIGINT NOT NULL,
    tenant TEXT NOT NULL,
    session_id TEXT,
    actor TEXT NOT NULL,
    action TEXT NOT NULL,
    detail TEXT NOT NULL
);
CREATE INDEX audit_by_tenant ON audit (tenant, id);
