import { CreateFileLink, FileLink } from '@coppice/contract';
import { answers } from '../../answers/answers.ts';
import { FILE_LINK_PREFIX } from '../../access/file-link-path.ts';
import type { App } from '../../app.ts';
import { resolvePath } from '../../../sandbox/environment/environments.ts';
import { SandboxParams } from '../../requests/params.ts';
import type { HttpParts } from '../../parts.ts';

export function addCreateFileLink(
  app: App,
  { sandboxes, fileLinks, audit }: Pick<HttpParts, 'sandboxes' | 'fileLinks' | 'audit'>,
): void {
  app.route({
    method: 'POST',
    url: '/v1/runs/:id/files/links',
    config: { access: 'full' },
    schema: {
      operationId: 'createFileLink',
      summary: 'Create a URL that reads or writes one file without an API key, until it expires',
      description:
        "A relative path starts at the cwd that the sandbox has now. Symlinks are followed when the URL is used. An upload belongs to the image's USER, and is the raw body or the part " +
        '`file` of a `multipart/form-data` body. Pages of the origins that may use the API may also use the URL.',
      params: SandboxParams,
      body: CreateFileLink,
      response: answers(201, FileLink, [400, 401, 404, 409, 413, 503]),
    },
    handler: async ({ reach, apiKeyId, params, body, ownOrigin }, reply) => {
      const { row } = await sandboxes.getDriver(reach, params.id);
      const { method, expires_in } = body;
      const path = resolvePath(row, body.path);
      const { token, expiresAt } = fileLinks.issue(
        { sandboxId: params.id, apiKeyId, path, method },
        expires_in,
      );
      const expires_at = new Date(expiresAt).toISOString();
      await audit.append(params.id, { event: 'file.link', data: { path, method, expires_at } });
      return reply.code(201).send({ url: `${ownOrigin}${FILE_LINK_PREFIX}${token}`, expires_at });
    },
  });
}
