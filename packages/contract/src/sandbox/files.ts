/** Wire form of files in a sandbox; file content is raw bytes. */
import { z } from 'zod';
import { boundedIntText, boundedText, GuestPath, Timestamp } from '../fields.ts';

export const DEFAULT_FILES_PAGE = 1000;
export const MAX_FILES_PAGE = 10_000;

/** The last name of a page in base64url; a name has at most 255 bytes. Opaque to callers. */
export const FilesCursor = z
  .string()
  .regex(/^[A-Za-z0-9_-]{1,340}$/, { error: 'is not a cursor from a Link header; start without one' });

export const FilePathQuery = z.strictObject({ path: GuestPath });
export type FilePathQuery = z.infer<typeof FilePathQuery>;

/** Query of `GET /v1/runs/{id}/files`. */
export const ListFilesQuery = z.strictObject({
  path: GuestPath,
  limit: boundedIntText(1, MAX_FILES_PAGE, DEFAULT_FILES_PAGE).describe(
    `Entries per page; a page of long names may have fewer. Default: ${DEFAULT_FILES_PAGE}.`,
  ),
  cursor: FilesCursor.optional().describe(
    'Starts after the last entry of the page whose Link header contained this cursor.',
  ),
});
export type ListFilesQuery = z.infer<typeof ListFilesQuery>;

/** Owner of files: name, uid, name:group or uid:gid. */
export const FileOwner = boundedText(1, 256);

/** Permissions in octal, with the set-id and sticky bits. */
export const FileMode = z.string().regex(/^[0-7]{3,4}$/, { error: 'must be octal, for example 755' });

export const UploadQuery = z.strictObject({
  path: GuestPath,
  user: FileOwner.optional().describe(
    'Owner of the file and of created directories: name, uid, name:group or uid:gid. ' +
      "Default: the image's USER.",
  ),
  mode: FileMode.optional().describe('Permissions in octal. Default: those of the replaced file, else 644.'),
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
    target: z.string().optional().describe('Target of a symlink.'),
  })
  .meta({ id: 'FileEntry' });
export type FileEntry = z.infer<typeof FileEntry>;

export const FileDetails = FileEntry.extend({
  uid: z.int(),
  gid: z.int(),
  user: z.string().optional().describe("Name of the owner, if the sandbox's /etc/passwd has one."),
  group: z.string().optional().describe("Name of the group, if the sandbox's /etc/group has one."),
}).meta({ id: 'FileDetails' });
export type FileDetails = z.infer<typeof FileDetails>;

const ArchiveFormat = z
  .enum(['tar', 'tar.gz'], { error: 'must be tar or tar.gz' })
  .default('tar')
  .describe('Default: tar.');

/** Query of `GET /v1/runs/{id}/files/archive`. */
export const ArchiveQuery = z.strictObject({ path: GuestPath, format: ArchiveFormat });
export type ArchiveQuery = z.infer<typeof ArchiveQuery>;

/** Query of `PUT /v1/runs/{id}/files/archive`. */
export const UnpackQuery = ArchiveQuery.extend({
  user: FileOwner.optional().describe(
    "Owner of all that is written: name, uid, name:group or uid:gid. Default: the image's USER.",
  ),
});
export type UnpackQuery = z.infer<typeof UnpackQuery>;

export const UnpackResult = z
  .object({
    path: z.string().describe('The directory.'),
    entries: z.int().min(0),
    size: z.int().min(0).describe('Bytes of all files.'),
  })
  .meta({ id: 'UnpackResult' });
export type UnpackResult = z.infer<typeof UnpackResult>;
