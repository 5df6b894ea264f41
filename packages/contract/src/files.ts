/** Wire form of files in a sandbox; the content itself is raw bytes. */
import { z } from 'zod';
import { GuestPath, Timestamp } from './fields.ts';

export const FilePathQuery = z.strictObject({ path: GuestPath });
export type FilePathQuery = z.infer<typeof FilePathQuery>;

export const UploadQuery = z.strictObject({
  path: GuestPath,
  mode: z
    .string()
    .regex(/^[0-7]{3,4}$/, { error: 'must be octal, for example 755' })
    .optional(),
});
export type UploadQuery = z.infer<typeof UploadQuery>;

export const UploadResult = z.object({ path: z.string(), size: z.int() }).meta({ id: 'UploadResult' });
export type UploadResult = z.infer<typeof UploadResult>;

export const FileEntry = z
  .object({
    name: z.string(),
    path: z.string(),
    type: z.enum(['file', 'dir', 'symlink', 'other']),
    size: z.number(),
    mode: z.string().meta({ example: '0644' }),
    mtime: Timestamp,
    target: z.string().optional().describe('Where a symlink points.'),
  })
  .meta({ id: 'FileEntry' });
export type FileEntry = z.infer<typeof FileEntry>;
