export type Question = import('./report.js').Question;
export type Decision = import('./report.js').Decision;
export type OnAsk = (question: Question) => Decision | Promise<Decision>;
/** @typedef {import('./report.js').Question} Question */
/** @typedef {import('./report.js').Decision} Decision */
/** @typedef {(question: Question) => Decision | Promise<Decision>} OnAsk */
/** Decides questions side by side. If the function throws, that question and all later ones are denied, and `error` has what it threw. */
export declare class Answers {
    #private;
    /**
     * @param {OnAsk} onAsk
     * @param {(answer: { id: number, decision: Decision }) => void} send
     */
    constructor(onAsk: OnAsk, send: (answer: {
        id: number;
        decision: Decision;
    }) => void);
    /** Throws what the function threw. */
    check(): void;
    /** @param {Question & { withdrawn?: boolean }} question */
    take(question: Question & {
        withdrawn?: boolean;
    }): Promise<void>;
}
/**
 * Calls `take` for each line of JSON that a stream brings.
 * @param {import('node:stream').Readable} stream
 * @param {(value: any) => void} take
 */
export declare function eachLine(stream: import('node:stream').Readable, take: (value: any) => void): void;
