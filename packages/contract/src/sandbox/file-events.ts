/** Wire form of the changes that a watch of a directory reports. */
import { z } from 'zod';
import { FlagText, GuestPath } from '../fields.ts';
import { StreamError } from './streams.ts';

/** Query of `GET /v1/runs/{id}/files/watch`. */
export const WatchFilesQuery = z.strictObject({
  path: GuestPath,
  recursive: FlagText.describe('Also watches all directories below, at most 8192.'),
});
export type WatchFilesQuery = z.infer<typeof WatchFilesQuery>;

const Path = z.string().describe('Absolute path.');
const IsDirectory = z.boolean().default(false).describe('Whether it is a directory.');

const CHANGES = [
  z.object({
    type: z
      .enum(['created', 'modified', 'attributes', 'removed'])
      .describe('`modified` is the content, `attributes` mode, owner and times.'),
    path: Path,
    directory: IsDirectory,
  }),
  z.object({ type: z.literal('renamed'), path: Path, from: Path, directory: IsDirectory }),
  z.object({
    type: z.literal('lost').describe('Events are missing, because they came faster than they were read.'),
    path: z.string().optional().describe('A directory whose changes are not reported; none: any.'),
  }),
  z.object({
    type: z.literal('ended').describe('The directory was removed, moved or unmounted.'),
    path: Path,
  }),
] as const;

/** A change as the guest reports it. */
export const FileChange = z.discriminatedUnion('type', CHANGES);
export type FileChange = z.infer<typeof FileChange>;

/** One event of a watch. `ended` or `error` is the last. */
export const FileEvent = z.discriminatedUnion('type', [...CHANGES, StreamError]).meta({ id: 'FileEvent' });
export type FileEvent = z.infer<typeof FileEvent>;
