/** Wire form of the changes of files in a sandbox, apart from uploads. */
import { z } from 'zod';
import { FlagText, GuestPath } from '../fields.ts';
import { FileMode, FileOwner } from './files.ts';

const flag = (standard: boolean): z.ZodDefault<z.ZodBoolean> =>
  z.boolean({ error: 'must be true or false' }).default(standard);

/** Body of `POST /v1/runs/{id}/files/mkdir`. */
export const MakeDirectory = z
  .strictObject({
    path: GuestPath,
    mode: FileMode.optional().describe(
      'Permissions in octal. Default: 755, which is also that of the parents.',
    ),
    parents: flag(true).describe(
      'Creates missing parents, and accepts an existing directory, which stays as it is.',
    ),
    user: FileOwner.optional().describe(
      "Owner of all created directories: name, uid, name:group or uid:gid. Default: the image's USER.",
    ),
  })
  .meta({ id: 'MakeDirectory' });
export type MakeDirectory = z.infer<typeof MakeDirectory>;

/** Body of `POST /v1/runs/{id}/files/move`. */
export const MoveFile = z
  .strictObject({
    from: GuestPath,
    to: GuestPath.describe('The new path itself, not the directory to move into. Its directory must exist.'),
    overwrite: flag(false).describe('Replaces a file, or an empty directory by a directory.'),
  })
  .meta({ id: 'MoveFile' });
export type MoveFile = z.infer<typeof MoveFile>;

/** Query of `DELETE /v1/runs/{id}/files`. */
export const RemoveFileQuery = z.strictObject({
  path: GuestPath,
  recursive: FlagText.describe('Also removes what is in a directory.'),
});
export type RemoveFileQuery = z.infer<typeof RemoveFileQuery>;

/** Body of `POST /v1/runs/{id}/files/chmod`. */
export const ChangeFileMode = z
  .strictObject({
    path: GuestPath,
    mode: FileMode.describe('Permissions in octal.'),
    recursive: flag(false).describe('Also changes all files and directories below a directory.'),
  })
  .meta({ id: 'ChangeFileMode' });
export type ChangeFileMode = z.infer<typeof ChangeFileMode>;

/** Body of `POST /v1/runs/{id}/files/chown`. */
export const ChangeFileOwner = z
  .strictObject({
    path: GuestPath,
    user: FileOwner.describe('The new owner: name, uid, name:group or uid:gid.'),
    recursive: flag(false).describe('Also changes everything below a directory.'),
  })
  .meta({ id: 'ChangeFileOwner' });
export type ChangeFileOwner = z.infer<typeof ChangeFileOwner>;
