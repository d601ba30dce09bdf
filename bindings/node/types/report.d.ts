export type Denial = {
    layer: string;
    syscall: string;
    rule: string;
    path: string | null;
    host: string | null;
    count: number;
    /**
     * flags for another run, quoted for a shell; {@link grant} splits them
     */
    allow_with: string | null;
};
export type Layer = {
    layer: string;
    status: 'enforced' | 'partial' | 'unavailable' | 'off';
    detail: string;
};
export type Report = {
    schema: 1;
    outcome: 'exited' | 'signaled' | 'timeout' | 'limit' | 'refused' | 'setup_failed' | 'not_found';
    exit_code: number;
    signal: number | null;
    duration_ms: number;
    command: string[];
    error?: string;
    denials: Denial[];
    layers: Layer[];
    /**
     * the captured output, its beginning and its end; absent if it was streamed
     */
    stdout?: string;
    stderr?: string;
    /**
     * the same bytes, if they are no UTF-8
     */
    stdout_base64?: string;
    stderr_base64?: string;
    stage?: {
        name: string;
        changes: number;
        means: 'overlay' | 'copy';
    };
    asked?: (Question & {
        decision: Decision;
        because: string;
    })[];
};
export type Decision = 'once' | 'run' | 'deny';
export type Question = {
    id: number;
    kind: 'path' | 'host' | 'socket';
    access: 'read' | 'write' | 'connect';
    syscall: string;
    path: string | null;
    host: string | null;
    comm: string;
    pid: number;
    argv: string[];
    allow_with: string | null;
    rule: string;
};
export type Change = {
    path: string;
    change: 'added' | 'modified' | 'deleted' | 'mode' | 'type';
    kind: 'file' | 'dir' | 'symlink';
    size: number | null;
    sha256: string | null;
};
export type Output = {
    stream: 'stdout' | 'stderr';
    data: Buffer;
};
/**
 * Whether the command exited with 0.
 * @param {Report} report
 * @returns {boolean}
 */
export declare function ok(report: Report): boolean;
/**
 * Returns the report of a command that exited with 0, and throws the RunFailed of its outcome otherwise.
 * @param {Report} report
 * @returns {Report}
 */
export declare function check(report: Report): Report;
/**
 * Splits the grant of a denial into words for `flags`; none if no flag would allow it. The confined command may have chosen a path in it,
 * so never paste it into a shell line.
 * @param {{ allow_with: string | null }} denial
 * @returns {string[]}
 */
export declare function grant(denial: {
    allow_with: string | null;
}): string[];
/**
 * @param {string} text
 * @returns {Report}
 */
export declare function parse(text: string): Report;
/**
 * @param {any} report
 * @returns {Report}
 */
export declare function checked(report: any): Report;
/**
 * The bytes of a captured stream.
 * @param {any} from a report, or an answer of the server
 * @param {'stdout' | 'stderr'} name
 * @returns {Buffer}
 */
export declare function bytes(from: any, name: 'stdout' | 'stderr'): Buffer;
