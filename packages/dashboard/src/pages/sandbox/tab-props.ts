import type { Sandbox, SandboxInfo } from '../../../../sdk/src/index.ts';

/** A tab of the page of one sandbox. */
export interface TabProps {
  /** Calls of the sandbox. It is another object after each reading. */
  sandbox: Sandbox;
  /** The record of the last reading. */
  record: SandboxInfo;
  /** Reads the record again. */
  reload: () => void;
}
