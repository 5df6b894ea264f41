/** Wire forms of forks and of the tree of forked sandboxes. */
import { z } from 'zod';
import { DiskName } from '../disks/disks.ts';
import { ErrorAnswer } from '../error-body.ts';
import { boundedInt, Timestamp } from '../fields.ts';
import { SANDBOX_STATES } from './lifecycle.ts';
import { SandboxRecord } from './sandbox.ts';

export const MAX_CHILDREN = 100;
/** Maximum number of nodes in one answer of `GET /v1/runs/{id}/tree`. */
export const MAX_TREE_NODES = 1000;

/** Body of `POST /v1/runs/{id}/fork`. */
export const ForkRequest = z
  .strictObject({
    count: boundedInt(1, MAX_CHILDREN, 'children').default(1),
    disks: z
      .array(DiskName)
      .max(MAX_CHILDREN)
      .optional()
      .describe(
        'Names of the disks that the children get, in their order, if the sandbox has a disk. Default: the name of its disk ' +
          'with a number.',
      ),
  })
  .refine(({ count, disks }) => disks === undefined || disks.length === count, {
    path: ['disks'],
    error: 'must have one name for each child',
  })
  .meta({ id: 'ForkRequest' });
export type ForkRequest = z.infer<typeof ForkRequest>;

/** Answer of a fork, in order. A child that could not be created is an error in its place, and the status is 207. */
export const ForkResult = z.array(z.union([SandboxRecord, ErrorAnswer])).meta({ id: 'ForkResult' });
export type ForkResult = z.infer<typeof ForkResult>;

export const SandboxTreeNode = z
  .object({
    id: z.string(),
    status: z.enum(SANDBOX_STATES),
    parent_id: z.string().nullable(),
    created_at: Timestamp,
    ended_at: Timestamp.nullable(),
  })
  .meta({ id: 'SandboxTreeNode' });
export type SandboxTreeNode = z.infer<typeof SandboxTreeNode>;

/** Answer of `GET /v1/runs/{id}/tree`. */
export const SandboxTree = z
  .object({
    root_id: z.string().describe('The ancestor that was created from an image.'),
    nodes: z
      .array(SandboxTreeNode)
      .describe(`In order of creation, at most ${MAX_TREE_NODES}, from the generations nearest to the root.`),
    truncated: z
      .boolean()
      .describe('True when there are more nodes: later ones of the last generation, or further generations.'),
  })
  .meta({ id: 'SandboxTree' });
export type SandboxTree = z.infer<typeof SandboxTree>;
