export type Command = string | readonly string[];
export type Settings = {
    /**
     * minimal (the default), read, write, network, or several
     */
    profile?: string | readonly string[];
    /**
     * none, own, loopback, full or hosts=...
     */
    net?: string;
    /**
     * flags of `gatekeeper run`
     */
    flags?: readonly string[];
    /**
     * the gatekeeper program; default: that of the variable GATEKEEPER, else the carried one, else that on PATH
     */
    program?: string;
};
export type How = {
    /**
     * more flags of `gatekeeper run`
     */
    flags?: readonly string[];
    /**
     * in milliseconds
     */
    timeout?: number;
    input?: string | Uint8Array;
    cwd?: string;
    /**
     * variables for the command
     */
    env?: Readonly<Record<string, string>>;
    /**
     * keep changes in the stage of this name
     */
    stage?: string;
    /**
     * ends the command and everything it started
     */
    signal?: AbortSignal;
};
/**
 * @param {string} [named]
 * @returns {string}
 */
export declare function findProgram(named?: string): string;
/**
 * @param {Settings} settings
 * @returns {string[]}
 */
export declare function policyFlags({ profile, net, flags }: Settings): string[];
/**
 * @param {How} how
 * @param {readonly string[]} settings
 * @returns {string[]}
 */
export declare function runFlags({ timeout, cwd, stage, flags }: How, settings: readonly string[]): string[];
/**
 * @param {Command} command
 * @returns {string[]}
 */
export declare function commandWords(command: Command): string[];
/**
 * What `--env-fd` reads. Not flags, because every user can read the command line of a process; and not gatekeeper's own environment,
 * because gatekeeper finds the caller's credentials by it.
 * @param {Readonly<Record<string, string>>} given
 * @returns {string}
 */
export declare function variables(given: Readonly<Record<string, string>>): string;
/**
 * Whether a text has no lone surrogate. Node would write U+FFFD in its place.
 * @param {string} text
 */
export declare function isUnicode(text: string): boolean;
