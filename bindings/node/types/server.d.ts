import { Answers } from './answers.js';
export type Report = import('./report.js').Report;
export type Output = import('./report.js').Output;
export type OnAsk = import('./answers.js').OnAsk;
export type ServerHow = Omit<import('./words.js').How, 'input'> & {
    input?: string;
    onAsk?: OnAsk;
};
/** Runs commands without starting gatekeeper for each. `close` ends every run. */
export declare class Server {
    #private;
    /**
     * @param {string} program
     * @param {readonly string[]} settings
     */
    constructor(program: string, settings: readonly string[]);
    /**
     * Runs a command, given as words or as a line for sh. The report has its output. `onAsk` decides about each refused path, host and UNIX
     * socket while the call waits.
     * @param {import('./words.js').Command} command
     * @param {ServerHow} [how]
     * @returns {Promise<Report>}
     */
    run(command: import('./words.js').Command, how?: ServerHow): Promise<Report>;
    /**
     * Starts a command whose output is iterated over. The server has one connection for all runs, so output that is not read yet waits in
     * memory, and does not hold up the command.
     * @param {import('./words.js').Command} command
     * @param {ServerHow} [how]
     * @returns {ServerRun}
     */
    stream(command: import('./words.js').Command, how?: ServerHow): ServerRun;
    /**
     * Ends every run, and the server.
     * @returns {Promise<void>}
     */
    close(): Promise<void>;
}
/**
 * A command of the server. Iterate over its output, then await `report`. Leaving the loop early ends the command.
 * @implements {AsyncIterable<Output>}
 */
export declare class ServerRun implements AsyncIterable<Output> {
    #private;
    /** The report; rejected if there is none. @type {Promise<Report>} */
    report: Promise<Report>;
    /**
     * @param {() => void} cancel
     * @param {Answers} [answers]
     */
    constructor(cancel: () => void, answers?: Answers);
    /** Ends the command and everything it started, if it still runs. */
    close(): void;
    /**
     * @param {Error} error
     * @internal
     */
    abort(error: Error): void;
    /** @returns {AsyncGenerator<Output, void, undefined>} */
    [Symbol.asyncIterator](): AsyncGenerator<Output, void, undefined>;
    /**
     * Takes an answer of the server; whether it was the last one.
     * @param {any} answer
     * @internal
     */
    take(answer: any): boolean;
    /**
     * @param {Error} error
     * @internal
     */
    end(error: Error): boolean;
}
