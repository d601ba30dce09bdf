import { Run } from './run.js';
import { Server } from './server.js';
import { Stage } from './stage.js';
export * from './errors.js';
export { bytes, check, grant, ok } from './report.js';
export { Run } from './run.js';
export { Server, ServerRun } from './server.js';
export { Stage } from './stage.js';
export { findProgram } from './words.js';
export type Report = import('./report.js').Report;
export type Denial = import('./report.js').Denial;
export type Layer = import('./report.js').Layer;
export type Question = import('./report.js').Question;
export type Decision = import('./report.js').Decision;
export type Change = import('./report.js').Change;
export type Output = import('./report.js').Output;
export type Command = import('./words.js').Command;
export type Settings = import('./words.js').Settings;
export type How = import('./words.js').How;
export type OnAsk = import('./answers.js').OnAsk;
/** @typedef {import('./report.js').Report} Report */
/** @typedef {import('./report.js').Denial} Denial */
/** @typedef {import('./report.js').Layer} Layer */
/** @typedef {import('./report.js').Question} Question */
/** @typedef {import('./report.js').Decision} Decision */
/** @typedef {import('./report.js').Change} Change */
/** @typedef {import('./report.js').Output} Output */
/** @typedef {import('./words.js').Command} Command */
/** @typedef {import('./words.js').Settings} Settings */
/** @typedef {import('./words.js').How} How */
/** @typedef {import('./answers.js').OnAsk} OnAsk */
export declare class Gatekeeper {
    #private;
    program: string;
    /** @param {Settings} [settings] what holds for every run */
    constructor(settings?: Settings);
    /**
     * Runs a command, given as words or as a line for sh. With `onOutput` the output goes there as it arrives; otherwise the report has it.
     * `onAsk` decides about each refused path, host and UNIX socket while the call waits.
     * @param {Command} command
     * @param {How & { onOutput?: (output: Output) => void, onAsk?: OnAsk }} [how]
     * @returns {Promise<Report>}
     */
    run(command: Command, how?: How & {
        onOutput?: (output: Output) => void;
        onAsk?: OnAsk;
    }): Promise<Report>;
    /**
     * Starts a command whose output is iterated over: `for await (const output of run)`, then `await run.report`.
     * @param {Command} command
     * @param {How & { onAsk?: OnAsk }} [how]
     * @returns {Run}
     */
    stream(command: Command, how?: How & {
        onAsk?: OnAsk;
    }): Run;
    /**
     * Runs a command. If it failed and something was denied, calls `ask` and, on a yes, runs it again with that grant.
     * @param {Command} command
     * @param {(denial: Denial) => boolean | Promise<boolean>} ask
     * @param {How & { onOutput?: (output: Output) => void, most?: number }} [how]
     * @returns {Promise<Report>}
     */
    runAsking(command: Command, ask: (denial: Denial) => boolean | Promise<boolean>, { most, flags, ...how }?: How & {
        onOutput?: (output: Output) => void;
        most?: number;
    }): Promise<Report>;
    /**
     * The stage of this name, in which `run(..., { stage: name })` keeps changes.
     * @param {string} name
     * @returns {Stage}
     */
    stage(name: string): Stage;
    /**
     * A warm server for many runs. Close it at the end.
     * @returns {Server}
     */
    serve(): Server;
}
