import type { BuildState, ErrorCode } from '@coppice/contract';

/** An image that an organization has built from steps, by its name. */
export interface BuiltImageTable {
  organization_id: string;
  /** `built/name:tag` */
  name: string;
  digest: string;
  size_bytes: number;
  built_at: number;
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
}

export interface ImageBuildEventTable {
  build_id: string;
  seq: number;
  /** JSON, without the number. */
  event: string;
}
