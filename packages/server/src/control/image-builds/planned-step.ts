import type { BuildStep } from '@coppice/contract';

/** A step of a build. One of a Dockerfile has a line, and its words have quotes and variables that are not replaced yet. */
export type PlannedStep = BuildStep & {
  line?: number;
  /** Sets an argument: to the value, or to `raw` once its variables are replaced. */
  arg?: { name: string; value: string | undefined; raw: string | undefined };
};
