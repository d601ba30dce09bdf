export type Report = import('./report.js').Report;
/** @typedef {import('./report.js').Report} Report */
/** gatekeeper wrote no report, or a stage could not be used. */
export declare class GatekeeperError extends Error {
    /**
     * @param {string} message
     * @param {{ cause?: unknown }} [options]
     */
    constructor(message: string, options?: {
        cause?: unknown;
    });
}
/** There is no gatekeeper program to run. Nothing was run. */
export declare class ProgramMissing extends GatekeeperError {
}
/** gatekeeper wrote no report: its flags are wrong, or it was killed. After wrong flags, nothing was run. */
export declare class NoReport extends GatekeeperError {
}
/** The server has ended, or was closed, before it answered. Everything that it ran has ended too. */
export declare class ServerGone extends NoReport {
}
/** A stage cannot be read, applied or discarded. */
export declare class StageError extends GatekeeperError {
}
/** Files changed in the real tree meanwhile. Nothing was applied; the message names each of them. */
export declare class StageConflict extends StageError {
}
/** A run did not exit with 0; `check` throws it. `report.outcome` says how it ended. */
export declare class RunFailed extends GatekeeperError {
    report: import("./report.js").Report;
    /** @param {Report} report */
    constructor(report: Report);
}
/** The command exited with another status than 0. */
export declare class CommandFailed extends RunFailed {
}
/** A signal killed the command. */
export declare class CommandKilled extends RunFailed {
}
/** The time limit ended the command and everything it started. */
export declare class TimedOut extends RunFailed {
}
/** Another limit ended the command. */
export declare class LimitReached extends RunFailed {
}
/** Nothing was run. */
export declare class NotRun extends RunFailed {
}
/** The policy, or the check of the program, forbids the command. */
export declare class Refused extends NotRun {
}
/** The sandbox could not be set up. `report.error` names the step; `gatekeeper doctor` prints the fix. */
export declare class SetupFailed extends NotRun {
}
/** There is no such command. */
export declare class CommandNotFound extends NotRun {
}
