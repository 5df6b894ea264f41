/** Settings of webhooks. */
import { compileReceiverAddresses } from '@coppice/contract';
import { z } from 'zod';

const OpenRanges = z.string().transform((text, context) => {
  const ranges = text
    .split(',')
    .map((item) => item.trim())
    .filter((item) => item !== '');
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
