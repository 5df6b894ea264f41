import { PortText } from '@coppice/contract';
import { z } from 'zod';

/** An id of any shape may be asked for; one that does not exist is 404, not 400. */
export const SandboxParams = z.strictObject({ id: z.string().max(200) });

/** Of every WebSocket of a sandbox. */
export const TicketQuery = z.strictObject({
  ticket: z.string().optional().describe('Of `POST …/tickets`, where no header can be sent.'),
});

export const PortParams = SandboxParams.extend({ port: PortText });

export const PreviewParams = SandboxParams.extend({ previewId: z.string().max(200) });

export const SnapshotParams = z.strictObject({ id: z.string().max(200) });

/** Any text: which ones name a registry is said in words, not by a pattern. */
export const RegistryParams = z.strictObject({ registry: z.string().max(1024) });
