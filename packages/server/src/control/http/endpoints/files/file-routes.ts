/** All routes below `/v1/runs/{id}/files`. */
import type { App } from '../../app.ts';
import type { HttpParts } from '../../parts.ts';
import { addChangeFileMode } from './change-file-mode.ts';
import { addChangeFileOwner } from './change-file-owner.ts';
import { addCreateFileLink } from './create-file-link.ts';
import { addDownloadArchive } from './download-archive.ts';
import { addDownloadFile } from './download-file.ts';
import { addListFiles } from './list-files.ts';
import { addMakeDirectory } from './make-directory.ts';
import { addMoveFile } from './move-file.ts';
import { addRemoveFile } from './remove-file.ts';
import { addStatFile } from './stat-file.ts';
import { addUploadArchive } from './upload-archive.ts';
import { addUploadFile } from './upload-file.ts';
import { addWatchFiles } from './watch-files.ts';

export function addFileRoutes(v1: App, parts: HttpParts): void {
  addUploadFile(v1, parts);
  addDownloadFile(v1, parts);
  addListFiles(v1, parts);
  addStatFile(v1, parts);
  addMakeDirectory(v1, parts);
  addMoveFile(v1, parts);
  addRemoveFile(v1, parts);
  addChangeFileMode(v1, parts);
  addChangeFileOwner(v1, parts);
  addDownloadArchive(v1, parts);
  addUploadArchive(v1, parts);
  addCreateFileLink(v1, parts);
  addWatchFiles(v1, parts);
}
