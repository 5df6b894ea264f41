import type { Sandbox, SandboxInfo } from '../../../../../sdk/src/index.ts';

/** A dialog that asks for one action of a sandbox. */
export interface ActionProps {
  sandbox: Sandbox;
  record: SandboxInfo;
  reload: () => void;
  onClose: () => void;
}
