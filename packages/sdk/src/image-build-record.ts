/** Records of builds and events of their logs. */
import {
  readNumber,
  readObject,
  readOptionalNumber,
  readOptionalString,
  readString,
  type WireObject,
} from './transport/wire.ts';

/** A build of an image from steps. */
export interface ImageBuildInfo {
  /** Id of the build. */
  id: string;
  /** `running`, `done`, `failed` or `cancelled`. A newer service may have more values. */
  status: string;
  /** Name of the image, `built/app:1`. */
  name: string;
  /** The image that the steps begin with. */
  from: string;
  /** Reference of the new image with its digest. Null until the build is done. */
  image: string | null;
  /** Size of the image as stored. Null until the build is done. */
  sizeBytes: number | null;
  /** Id of the sandbox of the build, which is destroyed at its end. There is none if all steps are cached. */
  sandboxId: string;
  /** Number of steps. */
  steps: number;
  /** Number of steps that are done. */
  stepsDone: number;
  /** Why it failed. */
  error: { code: string; message: string } | null;
  /** ISO 8601 UTC. */
  createdAt: string;
  /** ISO 8601 UTC. Null until then. */
  endedAt: string | null;
}

/** An event in the log of a build. `end` is the last. A newer service may have more types, which are left out. */
export type ImageBuildEvent =
  /** `cached`: the step does not run, because an earlier build has run the same steps. */
  | { type: 'step'; seq: number; step: number; text: string; cached: boolean }
  | { type: 'stdout' | 'stderr'; seq: number; step: number; data: string }
  | { type: 'note'; seq: number; text: string }
  | { type: 'end'; seq: number; build: ImageBuildInfo };

/** Returns undefined for a type that only a newer service sends. Throws `TypeError` for another shape. */
export function parseBuildEvent(type: string, event: WireObject): ImageBuildEvent | undefined {
  if (type === 'end') return { type, seq: readNumber(event, 'seq'), build: parseBuild(event['build']) };
  if (type === 'note') return { type, seq: readNumber(event, 'seq'), text: readString(event, 'text') };
  if (type !== 'step' && type !== 'stdout' && type !== 'stderr') return undefined;
  const place = { seq: readNumber(event, 'seq'), step: readNumber(event, 'step') };
  if (type === 'step')
    return { type, ...place, text: readString(event, 'text'), cached: event['cached'] === true };
  return { type, ...place, data: readString(event, 'data') };
}

export function parseBuild(value: unknown): ImageBuildInfo {
  const record = readObject(value, 'the build');
  const error = record['error'] === null ? null : readObject(record['error'], 'the error of the build');
  return {
    id: readString(record, 'id'),
    status: readString(record, 'status'),
    name: readString(record, 'name'),
    from: readString(record, 'from'),
    image: readOptionalString(record, 'image'),
    sizeBytes: readOptionalNumber(record, 'size_bytes'),
    sandboxId: readString(record, 'run_id'),
    steps: readNumber(record, 'steps'),
    stepsDone: readNumber(record, 'steps_done'),
    error: error && { code: readString(error, 'code'), message: readString(error, 'message') },
    createdAt: readString(record, 'created_at'),
    endedAt: readOptionalString(record, 'ended_at'),
  };
}
