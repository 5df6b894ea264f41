/** Parts and results of an attachment. */
import type { Logger } from 'pino';
import type { WorkspaceDevice } from '../vm/workspace-device.ts';
import type { BlockServer } from './block-server.ts';
import type { HeldGuest } from './guest-hold.ts';
import type { OverlayDirectory } from './overlay-directory.ts';
import type { SealedMoment } from './sealed-moment.ts';

export interface AttachmentParts {
  server: Pick<BlockServer, 'ask'>;
  /** Id of this runner among all holders of disks. */
  runner: string;
  unit: string;
  directory: OverlayDirectory;
  log: Logger;
}

export interface AttachmentState {
  overlays: number[];
  /** Undefined for an attachment of an earlier runner process. */
  exportName?: string;
}

/** The VM that has the disk. */
export interface AttachedGuest extends HeldGuest {
  device: WorkspaceDevice;
  /** Ends the VM: another holder has the disk. */
  end: () => void;
}

/** A seal in the making. Until it is disposed no other change of the disk's overlays begins. */
export interface Sealing extends AsyncDisposable {
  /** Seals the top. The guest may run or stand still. The caller disposes the result. */
  push: () => Promise<SealedMoment>;
}
