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
 * Flags that set variables for the command, and the environment in which gatekeeper has to run for that.
 * @param {Readonly<Record<string, string>>} given
 * @returns {{ words: string[], env: NodeJS.ProcessEnv }}
 */
export declare function environment(given: Readonly<Record<string, string>>): {
    words: string[];
    env: NodeJS.ProcessEnv;
};
