import { pipeline } from 'node:stream/promises';
import { ExportDiskQuery } from '@coppice/contract';
import { z } from 'zod';
import { readWhole } from '../../../../lib/streams/whole-stream.ts';
import type { RunnerAnswer } from '../../../placement/runner-connection.ts';
import { answers, CONTENT, contents } from '../../answers/answers.ts';
import type { App } from '../../app.ts';
import { sendBody } from '../../answers/send-body.ts';
import { DiskParams } from '../../requests/params.ts';
import type { HttpParts } from '../../parts.ts';

const RAW = contents('The disk image', { 'application/octet-stream': CONTENT });
const HEADERS = {
  'content-type': 'application/octet-stream',
  // The content is the guest's: a browser must not render it as a page of this origin.
  'content-disposition': 'attachment',
  'x-content-type-options': 'nosniff',
};

type Parts = Pick<HttpParts, 'disks' | 'openRequests' | 'limits'>;

export function addExportDisk(app: App, { disks, openRequests, limits }: Parts): void {
  app.route({
    method: 'GET',
    url: '/v1/disks/:disk/content',
    config: { access: 'read' },
    schema: {
      operationId: 'exportDisk',
      summary: 'Read a persistent disk as a disk image',
      description:
        'The newest version in the object store, or that of a snapshot. Of a disk in use, `POST …/flush` stores the latest ' +
        'writes first.',
      params: DiskParams,
      querystring: ExportDiskQuery,
      response: { ...answers(200, z.any(), [400, 401, 404, 429, 503]), 200: RAW },
    },
    handler: async (request, reply) => {
      const { organizationId, reach, params, query } = request;
      await openRequests.limit(organizationId, async () => {
        const answer = await disks.export(reach, params.disk, query);
        const body = { status: 200, headers: buildHeaders(answer), stallMs: limits.transferStallMs };
        return sendBody(reply, body, (raw) => pipeline(readWhole(answer.stream, null), raw));
      });
      return reply;
    },
  });
}

function buildHeaders({ headers }: RunnerAnswer): Record<string, string> {
  const length = headers['content-length'];
  return length === undefined ? HEADERS : { ...HEADERS, 'content-length': length };
}
