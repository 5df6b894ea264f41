import type { Sandbox, SandboxInfo } from '../../../../../sdk/src/index.ts';

/** A dialog that asks for one action of a sandbox. */
export interface ActionProps {
  sandbox: Sandbox;
  record: SandboxInfo;
  /** Runs the action, and has the page show how it proceeds. */
  perform: <Result>(work: () => Promise<Result>) => Promise<Result>;
  onClose: () => void;
}
