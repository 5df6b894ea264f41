/** Wire form of links to single files, which work without an API key. */
import { z } from 'zod';
import { boundedInt, GuestPath, Timestamp } from '../fields.ts';

export const FILE_LINK_METHODS = ['download', 'upload'] as const;
const MAX_LINK_S = 7 * 86_400;
const DEFAULT_LINK_S = 3600;

/** Body of `POST /v1/runs/{id}/files/links`. */
export const CreateFileLink = z
  .strictObject({
    path: GuestPath,
    method: z
      .enum(FILE_LINK_METHODS, { error: 'must be download or upload' })
      .describe('`download` allows GET and HEAD of the URL, `upload` PUT and POST.'),
    expires_in: boundedInt(1, MAX_LINK_S, 'seconds').default(DEFAULT_LINK_S),
  })
  .meta({ id: 'CreateFileLink' });
export type CreateFileLink = z.infer<typeof CreateFileLink>;

export const FileLink = z
  .object({
    url: z
      .string()
      .describe(
        'Anyone with this URL can read or write the file until it expires, its API key is revoked, or the sandbox has ended: ' +
          'treat it as a password.',
      ),
    expires_at: Timestamp,
  })
  .meta({ id: 'FileLink' });
export type FileLink = z.infer<typeof FileLink>;
