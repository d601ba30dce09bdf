export type Change = import('./report.js').Change;
/** @typedef {import('./report.js').Change} Change */
/** The changes of the runs with this stage. Nothing of them is in the real tree before `apply`. */
export declare class Stage {
    #private;
    name: string;
    /**
     * @param {string} program
     * @param {string} name
     */
    constructor(program: string, name: string);
    /**
     * Every change, sorted by path.
     * @returns {Promise<Change[]>}
     */
    diff(): Promise<Change[]>;
    /**
     * The changes as a patch for `git apply` and `patch -p1`.
     * @returns {Promise<string>}
     */
    patch(): Promise<string>;
    /**
     * Takes all changes, or those at and below paths, into the real tree. Rejects with StageConflict, and changes nothing, if files changed
     * there meanwhile.
     * @param {readonly string[]} [paths]
     * @param {{ protected?: 'refuse' | 'skip' | 'take' }} [options] what happens to files that decide what other programs run
     * @returns {Promise<void>}
     */
    apply(paths?: readonly string[], options?: {
        protected?: 'refuse' | 'skip' | 'take';
    }): Promise<void>;
    /**
     * Throws the changes away.
     * @returns {Promise<void>}
     */
    discard(): Promise<void>;
}
