// What can go wrong. All derive from GatekeeperError.

/** @typedef {import('./report.js').Report} Report */

/** gatekeeper wrote no report, or a stage could not be used. */
export class GatekeeperError extends Error {
  /**
   * @param {string} message
   * @param {{ cause?: unknown }} [options]
   */
  constructor(message, options) {
    super(message, options);
    this.name = new.target.name;
  }
}

/** There is no gatekeeper program to run. Nothing was run. */
export class ProgramMissing extends GatekeeperError {}

/** gatekeeper wrote no report: its flags are wrong, or it was killed. After wrong flags, nothing was run. */
export class NoReport extends GatekeeperError {}

/** The server has ended, or was closed, before it answered. Everything that it ran has ended too. */
export class ServerGone extends NoReport {}

/** A stage cannot be read, applied or discarded. */
export class StageError extends GatekeeperError {}

/** Files changed in the real tree meanwhile. Nothing was applied; the message names each of them. */
export class StageConflict extends StageError {}

/** A run did not exit with 0; `check` throws it. `report.outcome` says how it ended. */
export class RunFailed extends GatekeeperError {
  /** @param {Report} report */
  constructor(report) {
    const [denial] = report.denials;
    const denied = denial ? `; denied: ${denial.syscall} ${denial.path ?? denial.host ?? ''} (${denial.rule})` : '';
    super(`${report.outcome}, exit status ${report.exit_code}${report.error ? `: ${report.error}` : ''}${denied}`);
    this.report = report;
  }
}

/** The command exited with another status than 0. */
export class CommandFailed extends RunFailed {}

/** A signal killed the command. */
export class CommandKilled extends RunFailed {}

/** The time limit ended the command and everything it started. */
export class TimedOut extends RunFailed {}

/** Another limit ended the command. */
export class LimitReached extends RunFailed {}

/** Nothing was run. */
export class NotRun extends RunFailed {}

/** The policy, or the check of the program, forbids the command. */
export class Refused extends NotRun {}

/** The sandbox could not be set up. `report.error` names the step; `gatekeeper doctor` prints the fix. */
export class SetupFailed extends NotRun {}

/** There is no such command. */
export class CommandNotFound extends NotRun {}
