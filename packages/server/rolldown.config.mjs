/**
 * How set-up makes the service's files: one for each role, and for what roles share.
 * @type {import('rolldown').RolldownOptions & { output: import('rolldown').OutputOptions }}
 */
export default {
  input: 'src/main.ts',
  platform: 'node',
  // It loads a file of machine code from its own directory.
  external: ['koffi'],
  output: { format: 'esm', entryFileNames: '[name].mjs', chunkFileNames: '[name].mjs' },
  logLevel: 'warn',
};
