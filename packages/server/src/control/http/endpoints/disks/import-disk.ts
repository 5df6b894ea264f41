import { AppError, DiskName, DiskRecord, ImportDiskQuery } from '@coppice/contract';
import { newDiskId } from '../../../disks/disk-ids.ts';
import { answers, CONTENT } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import { DiskParams } from '../../requests/params.ts';
import { addRawBodies, BODY_DEADLINE_MS, cutOff, watchForStall } from '../../requests/raw-body.ts';
import type { HttpParts } from '../../parts.ts';

type Parts = Pick<HttpParts, 'disks' | 'openRequests' | 'limits'>;

/** The body is piped to the runner as it comes. If it breaks off, no disk is left. */
export function addImportDisk(app: App, { disks, openRequests, limits }: Parts): void {
  addRawBodies(app, (scope) => {
    scope.route({
      method: 'PUT',
      url: '/v1/disks/:disk/content',
      config: { access: 'full', hasRawBody: true },
      schema: {
        operationId: 'importDisk',
        summary: 'Make a new persistent disk from a disk image with an ext4 file system',
        description:
          'The size of the image is rounded up to whole GB. The disk appears when the import is complete.',
        consumes: ['application/octet-stream'],
        body: CONTENT,
        params: DiskParams,
        querystring: ImportDiskQuery,
        response: answers(201, DiskRecord, [400, 401, 409, 429, 503, 504]),
      },
      handler: async (request, reply) => {
        const { organizationId, teamId, params, query } = request;
        const name = parseName(params.disk);
        using stall = watchForStall(request, limits.transferStallMs, 'unavailable');
        const image = {
          format: query.format,
          content: request.raw,
          deadlineMs: BODY_DEADLINE_MS,
          signal: stall.signal,
        };
        const owner = { organizationId, teamId };
        const record = await openRequests.limit(organizationId, () =>
          disks.import({ id: newDiskId(), owner }, name, image),
        );
        return reply.code(201).header('location', `/v1/disks/${name}`).send(record);
      },
      onError: async (request) => cutOff(request),
    });
  });
}

function parseName(name: string): string {
  const parsed = DiskName.safeParse(name);
  if (parsed.success) return parsed.data;
  throw new AppError('invalid_request', `disk: ${parsed.error.issues[0]?.message}`);
}
