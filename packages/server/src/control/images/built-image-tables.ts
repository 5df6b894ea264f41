import type { BuildState, ErrorCode } from '@coppice/contract';

/** An image that an organization has built from steps, by its name. */
export interface BuiltImageTable {
  organization_id: string;
  /** The team of the last build with the name. */
  team_id: string;
  /** `built/name:tag` */
  name: string;
  digest: string;
  size_bytes: number;
  built_at: number;
  /** The runner where it was built, the only one that has it until it is in the object store; null for one of an earlier version. */
  runner_id: string | null;
}

/** The result of a step of a build, for later builds that begin with the same steps. */
export interface ImageStepTable {
  organization_id: string;
  /** Hash of the step and of all before it. */
  key: string;
  /** Digest of the image after the step. */
  digest: string;
  size_bytes: number;
  last_used_at: number;
}

export interface ImageBuildTable {
  id: string;
  organization_id: string;
  team_id: string;
  name: string;
  /** As requested. */
  base: string;
  sandbox_id: string;
  state: BuildState;
  steps: number;
  steps_done: number;
  digest: string | null;
  size_bytes: number | null;
  error_code: ErrorCode | null;
  error_message: string | null;
  created_at: number;
  ended_at: number | null;
  /** Whether it was started with a key that is limited to the team. */
  team_only: boolean;
  /** Whether its sandbox is destroyed, and images that it made and did not name are given up. */
  cleaned: boolean;
  /** The control that runs it; null for one of an earlier version. */
  control_id: string | null;
  /** Whether a caller has cancelled it: the control that runs it ends it soon. */
  is_cancelled: boolean;
}

export interface ImageBuildEventTable {
  build_id: string;
  seq: number;
  /** JSON, without the number. */
  event: string;
}

/** An image that the runner may have to give up: a name or a step stood for it. */
export interface ImageReleaseTable {
  digest: string;
  noted_at: number;
}
