/** Settings of webhooks. */
import { compileReceiverAddresses } from '@coppice/contract';
import { z } from 'zod';
import { splitList } from './comma-list.ts';

const OpenRanges = z.string().transform((text, context) => {
  const ranges = splitList(text);
  try {
    compileReceiverAddresses(ranges, []);
    return ranges;
  } catch (error) {
    const message = error instanceof Error ? error.message.replace('open ranges: ', '') : String(error);
    context.addIssue({ code: 'custom', message });
    return z.NEVER;
  }
});

export const WEBHOOK_SETTINGS = { COPPICE_WEBHOOK_OPEN_RANGES: OpenRanges.prefault('') };
