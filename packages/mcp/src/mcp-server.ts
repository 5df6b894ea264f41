import { McpServer } from '@modelcontextprotocol/server';
import { addTool, type ToolSession } from './add-tool.ts';
import { checkpoint } from './tools/checkpoint.ts';
import { createSandbox } from './tools/create-sandbox.ts';
import { destroySandbox } from './tools/destroy-sandbox.ts';
import { exec } from './tools/exec.ts';
import { fork } from './tools/fork.ts';
import { hibernate } from './tools/hibernate.ts';
import { listFiles } from './tools/list-files.ts';
import { listSandboxes } from './tools/list-sandboxes.ts';
import { readFile } from './tools/read-file.ts';
import { restore } from './tools/restore.ts';
import { resume } from './tools/resume.ts';
import { url } from './tools/url.ts';
import { writeFile } from './tools/write-file.ts';

const INSTRUCTIONS =
  'Sandboxes are isolated Linux virtual machines for code that you do not trust. Start with create_sandbox and pass its ' +
  'sandboxId to the other tools; never invent an id. Everything in a sandbox is kept between calls. checkpoint and restore, ' +
  'or fork, let you try something and return. Call destroy_sandbox when you are done.';

/** Builds a server with all tools. It serves one connection or one request. */
export function buildMcpServer(session: ToolSession, version: string): McpServer {
  const server = new McpServer(
    { name: 'coppice', title: 'Coppice sandboxes', version },
    { instructions: INSTRUCTIONS, capabilities: { tools: { listChanged: false } } },
  );
  addTool(server, session, createSandbox);
  addTool(server, session, exec);
  addTool(server, session, readFile);
  addTool(server, session, writeFile);
  addTool(server, session, listFiles);
  addTool(server, session, url);
  addTool(server, session, fork);
  addTool(server, session, checkpoint);
  addTool(server, session, restore);
  addTool(server, session, hibernate);
  addTool(server, session, resume);
  addTool(server, session, listSandboxes);
  addTool(server, session, destroySandbox);
  return server;
}
