export type Report = import('./report.js').Report;
export type Output = import('./report.js').Output;
export type OnAsk = import('./answers.js').OnAsk;
/** @typedef {import('./report.js').Report} Report */
/** @typedef {import('./report.js').Output} Output */
/** @typedef {import('./answers.js').OnAsk} OnAsk */
/**
 * A command that runs. Iterate over its output, then await `report`. Leaving the loop early ends the command and everything it started.
 * @implements {AsyncIterable<Output>}
 */
export declare class Run implements AsyncIterable<Output> {
    #private;
    /** The report; rejected if there is none. @type {Promise<Report>} */
    report: Promise<Report>;
    /**
     * @param {string} program
     * @param {readonly string[]} settings
     * @param {import('./words.js').Command} command
     * @param {import('./words.js').How & { onAsk?: OnAsk }} how
     * @param {boolean} streams whether the output is iterated over; otherwise the report has it
     */
    constructor(program: string, settings: readonly string[], command: import('./words.js').Command, how: import('./words.js').How & {
        onAsk?: OnAsk;
    }, streams: boolean);
    /** Ends the command and everything it started, if it still runs. */
    close(): void;
    /** @returns {AsyncGenerator<Output, void, undefined>} */
    [Symbol.asyncIterator](): AsyncGenerator<Output, void, undefined>;
}
