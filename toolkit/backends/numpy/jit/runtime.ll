; Runs programs of generated functions on the calling thread and on workers.
;
; A program is a list of sections that run in order. A section is a list of calls on the
; same rows. Its rows are divided into tasks, and any thread can take a task. A task
; runs
; all calls on one small group of rows before it continues with the next group, so the
; results of one call are still in the cache for the next call. The assignment of tasks
; to threads never changes a result. Independent sections can be the tasks of a section.

; patches, addresses: before a run, `patch` writes the word of each patch
; events: null, or the address of the events, which record the time and thread of a task
; An address is one word of 64 bits on every target.
%Program = type { i64, i64, i64, i64, i64, i64, i64, i64 }
;                 patches,  sections, objects, address offset, error, events
%Patch = type { i64, i64, i64 }                             ; word, object, offset
%Section = type { i64, i64, i64, i64, i64, i64, i64, i64 }
;                 tasks, rows of a task, rows, rows of a group, calls, parallel, event
; calls: their number and address; 0: the address of a loop; -1: of one section per task
; parallel: 1 if several threads are worthwhile; + 2 if a single thread runs all tasks
; as one
%Call = type { i64, i64, i64 }                              ; code, table, row factor
; address of the condition, address of the iteration count (each 0 if unused), value of
; the condition that continues; program, maximum of iterations, moves, words to write
%Loop = type { i64, i64, i64, i64, i64, i64, i64, i64 }
; address in the first and last iteration or 0; base, stride, phase, offset of odd
; iterations
%Move = type { i64, i64, i64, i64, i64, i64 }
%Event = type { i64, i64, i64 }                             ; start, end, thread

declare i64 @llvm.smin.i64(i64, i64)
declare i64 @clock()
; Defined in threads.ll or alone.ll
declare i1 @borrow(ptr)
declare void @give_back(ptr)
declare void @share(ptr, ptr, i64, ptr)

; --- one task --------------------------------------------------------------------------

define void @task(ptr %section, i64 %task, ptr %events, i64 %thread) #0 {
entry:
  %section.v = load %Section, ptr %section
  %grain = extractvalue %Section %section.v, 1
  %rows = extractvalue %Section %section.v, 2
  %calls = extractvalue %Section %section.v, 4
  %low = mul i64 %task, %grain
  %after = add i64 %low, %grain
  %high = call i64 @llvm.smin.i64(i64 %after, i64 %rows)
  %start = call i64 @clock()
  %is.branch = icmp eq i64 %calls, -1
  br i1 %is.branch, label %branch, label %groups
branch:
  ; Each task is a section.
  %first.v = extractvalue %Section %section.v, 5
  %first = inttoptr i64 %first.v to ptr
  %branch.at = getelementptr %Section, ptr %first, i64 %task
  %branch.tasks = load i64, ptr %branch.at
  br label %branch.next
branch.next:
  %b = phi i64 [ 0, %branch ], [ %b.next, %branch.do ]
  %b.more = icmp slt i64 %b, %branch.tasks
  br i1 %b.more, label %branch.do, label %done
branch.do:
  call void @task(ptr %branch.at, i64 %b, ptr null, i64 %thread)
  %b.next = add i64 %b, 1
  br label %branch.next
groups:
  call void @rows(ptr %section, i64 %low, i64 %high, i64 %task)
  br label %done
done:
  call void @note(ptr %section, i64 %task, ptr %events, i64 %start, i64 %thread)
  ret void
}

; Run all calls on a range of rows, one group at a time.
define internal void @rows(ptr %section, i64 %low, i64 %high, i64 %task) #0 {
entry:
  %section.v = load %Section, ptr %section
  %group = extractvalue %Section %section.v, 3
  %calls = extractvalue %Section %section.v, 4
  %first.call.v = extractvalue %Section %section.v, 5
  %first.call = inttoptr i64 %first.call.v to ptr
  %last.call = getelementptr %Call, ptr %first.call, i64 %calls
  br label %groups
groups:
  %g = phi i64 [ %low, %entry ], [ %g.next, %group.done ]
  %more = icmp slt i64 %g, %high
  br i1 %more, label %group.begin, label %done
group.begin:
  %g.after = add i64 %g, %group
  %g.next = call i64 @llvm.smin.i64(i64 %g.after, i64 %high)
  br label %call
call:
  %c = phi ptr [ %first.call, %group.begin ], [ %c.next, %call ]
  %code.at = getelementptr %Call, ptr %c, i32 0, i32 0
  %table.at = getelementptr %Call, ptr %c, i32 0, i32 1
  %factor.at = getelementptr %Call, ptr %c, i32 0, i32 2
  %code.v = load i64, ptr %code.at
  %code = inttoptr i64 %code.v to ptr
  %table.v = load i64, ptr %table.at
  %table = inttoptr i64 %table.v to ptr
  %factor = load i64, ptr %factor.at
  %from = mul i64 %g, %factor
  %to = mul i64 %g.next, %factor
  call void %code(ptr %table, i64 %from, i64 %to, i64 %task)
  %c.next = getelementptr %Call, ptr %c, i64 1
  %c.more = icmp ult ptr %c.next, %last.call
  br i1 %c.more, label %call, label %group.done
group.done:
  br label %groups
done:
  ret void
}

; Record the start and the end of a task.
define void @note(ptr %section, i64 %task, ptr %events, i64 %start, i64 %thread) #0 {
entry:
  %timed = icmp ne ptr %events, null
  br i1 %timed, label %write, label %end
write:
  %base.at = getelementptr %Section, ptr %section, i32 0, i32 7
  %base = load i64, ptr %base.at
  %index = add i64 %base, %task
  %event = getelementptr %Event, ptr %events, i64 %index
  %stop = call i64 @clock()
  %event.0 = insertvalue %Event poison, i64 %start, 0
  %event.1 = insertvalue %Event %event.0, i64 %stop, 1
  %event.2 = insertvalue %Event %event.1, i64 %thread, 2
  store %Event %event.2, ptr %event
  br label %end
end:
  ret void
}

; --- a program -------------------------------------------------------------------------

; Write the addresses of the arrays of a call.
define void @patch(ptr %program) #0 {
entry:
  %program.v = load %Program, ptr %program
  %patches = extractvalue %Program %program.v, 0
  %first.v = extractvalue %Program %program.v, 1
  %first = inttoptr i64 %first.v to ptr
  %objects.v = extractvalue %Program %program.v, 4
  %objects = inttoptr i64 %objects.v to ptr
  %shift = extractvalue %Program %program.v, 5
  br label %next
next:
  %p = phi i64 [ 0, %entry ], [ %p.next, %fill ]
  %more = icmp slt i64 %p, %patches
  br i1 %more, label %fill, label %end
fill:
  %patch.at = getelementptr %Patch, ptr %first, i64 %p
  %patch = load %Patch, ptr %patch.at
  %word.v = extractvalue %Patch %patch, 0
  %word = inttoptr i64 %word.v to ptr
  %number = extractvalue %Patch %patch, 1
  %offset = extractvalue %Patch %patch, 2
  %object.at = getelementptr i64, ptr %objects, i64 %number
  %object.v = load i64, ptr %object.at
  %object = inttoptr i64 %object.v to ptr
  %address.at = getelementptr i8, ptr %object, i64 %shift
  %address = load i64, ptr %address.at
  %filled = add i64 %address, %offset
  store i64 %filled, ptr %word
  %p.next = add i64 %p, 1
  br label %next
end:
  ret void
}

; Run the sections in order, until an error. pool: null, or the pool of helping workers.
define void @sections(ptr %program, ptr %pool) #0 {
entry:
  %program.v = load %Program, ptr %program
  %sections = extractvalue %Program %program.v, 2
  %first.v = extractvalue %Program %program.v, 3
  %first = inttoptr i64 %first.v to ptr
  %error.v = extractvalue %Program %program.v, 6
  %error = inttoptr i64 %error.v to ptr
  %events.v = extractvalue %Program %program.v, 7
  %events = inttoptr i64 %events.v to ptr
  %last = getelementptr %Section, ptr %first, i64 %sections
  %error.section = getelementptr i64, ptr %error, i64 3
  %together = icmp ne ptr %pool, null
  %untimed = icmp eq ptr %events, null
  br label %next
next:
  %s = phi ptr [ %first, %entry ], [ %s.next, %done ]
  %more = icmp ult ptr %s, %last
  br i1 %more, label %begin, label %end
begin:
  ; The reader of an error needs the section.
  %s.number = ptrtoint ptr %s to i64
  store i64 %s.number, ptr %error.section
  %tasks = load i64, ptr %s
  %calls.at = getelementptr %Section, ptr %s, i32 0, i32 4
  %calls = load i64, ptr %calls.at
  %is.loop = icmp eq i64 %calls, 0
  br i1 %is.loop, label %loop, label %choose
choose:
  %parallel.at = getelementptr %Section, ptr %s, i32 0, i32 6
  %parallel = load i64, ptr %parallel.at
  %parallel.bit = and i64 %parallel, 1
  %wide = icmp ne i64 %parallel.bit, 0
  %shared = and i1 %wide, %together
  %stream.bit = and i64 %parallel, 2
  %is.stream = icmp ne i64 %stream.bit, 0
  ; Each task records its time.
  %whole = and i1 %is.stream, %untimed
  br i1 %shared, label %share, label %unshared
unshared:
  br i1 %whole, label %stream, label %alone
stream:
  %rows.at = getelementptr %Section, ptr %s, i32 0, i32 2
  %rows = load i64, ptr %rows.at
  call void @rows(ptr %s, i64 0, i64 %rows, i64 0)
  br label %done
loop:
  %loop.at = getelementptr %Section, ptr %s, i32 0, i32 5
  %loop.v = load i64, ptr %loop.at
  %loop.p = inttoptr i64 %loop.v to ptr
  %start = call i64 @clock()
  call void @loop(ptr %loop.p, ptr %pool, ptr %error)
  call void @note(ptr %s, i64 0, ptr %events, i64 %start, i64 0)
  br label %done
share:
  call void @share(ptr %pool, ptr %s, i64 %tasks, ptr %events)
  br label %done
alone:
  %t = phi i64 [ 0, %unshared ], [ %t.next, %alone.do ]
  %t.more = icmp slt i64 %t, %tasks
  br i1 %t.more, label %alone.do, label %done
alone.do:
  call void @task(ptr %s, i64 %t, ptr %events, i64 0)
  %t.next = add i64 %t, 1
  br label %alone
done:
  %s.next = getelementptr %Section, ptr %s, i64 1
  %flag = load i64, ptr %error
  %fine = icmp eq i64 %flag, 0
  br i1 %fine, label %next, label %end
end:
  ret void
}

; Run a program repeatedly, with array addresses that vary by iteration.
define void @loop(ptr %loop, ptr %pool, ptr %error) #0 {
entry:
  %loop.v = load %Loop, ptr %loop
  %condition.v = extractvalue %Loop %loop.v, 0
  %condition = inttoptr i64 %condition.v to ptr
  %done.v = extractvalue %Loop %loop.v, 1
  %done = inttoptr i64 %done.v to ptr
  %wanted = extractvalue %Loop %loop.v, 2
  %program.v = extractvalue %Loop %loop.v, 3
  %program = inttoptr i64 %program.v to ptr
  %length = extractvalue %Loop %loop.v, 4
  %count = extractvalue %Loop %loop.v, 5
  %moves.v = extractvalue %Loop %loop.v, 6
  %moves = inttoptr i64 %moves.v to ptr
  %words.v = extractvalue %Loop %loop.v, 7
  %words = inttoptr i64 %words.v to ptr
  %length.last = sub i64 %length, 1
  %asks = icmp ne i64 %condition.v, 0
  %counts = icmp ne i64 %done.v, 0
  br label %turn
turn:
  %t = phi i64 [ 0, %entry ], [ %t.next, %again ]
  %is.first = icmp eq i64 %t, 0
  %is.last = icmp eq i64 %t, %length.last
  %turns = icmp slt i64 %t, %length
  br i1 %turns, label %ask, label %leave
ask:
  br i1 %asks, label %answer, label %places
answer:
  %answer.v = load i8, ptr %condition
  %holds = icmp ne i8 %answer.v, 0
  %holds.v = zext i1 %holds to i64
  %goes.on = icmp eq i64 %holds.v, %wanted
  br i1 %goes.on, label %places, label %leave
places:
  br label %next
next:
  %k = phi i64 [ 0, %places ], [ %k.next, %move ]
  %more = icmp slt i64 %k, %count
  br i1 %more, label %move, label %run
move:
  %move.at = getelementptr %Move, ptr %moves, i64 %k
  %move.v = load %Move, ptr %move.at
  %first = extractvalue %Move %move.v, 0
  %last = extractvalue %Move %move.v, 1
  %base = extractvalue %Move %move.v, 2
  %stride = extractvalue %Move %move.v, 3
  %phase = extractvalue %Move %move.v, 4
  %delta = extractvalue %Move %move.v, 5
  %far = mul i64 %t, %stride
  %parity.t = add i64 %t, %phase
  %parity = and i64 %parity.t, 1
  %side = mul i64 %parity, %delta
  %at.0 = add i64 %base, %far
  %at.1 = add i64 %at.0, %side
  %has.first = icmp ne i64 %first, 0
  %use.first = and i1 %is.first, %has.first
  %at.2 = select i1 %use.first, i64 %first, i64 %at.1
  %has.last = icmp ne i64 %last, 0
  %use.last = and i1 %is.last, %has.last
  %at = select i1 %use.last, i64 %last, i64 %at.2
  %word = getelementptr i64, ptr %words, i64 %k
  store i64 %at, ptr %word
  %k.next = add i64 %k, 1
  br label %next
run:
  call void @patch(ptr %program)
  call void @sections(ptr %program, ptr %pool)
  %flag = load i64, ptr %error
  %fine = icmp eq i64 %flag, 0
  br i1 %fine, label %again, label %end
again:
  %t.next = add i64 %t, 1
  br label %turn
leave:
  br i1 %counts, label %tell, label %end
tell:
  store i64 %t, ptr %done
  br label %end
end:
  ret void
}

; Run a program; return the first word of its error block.
define i64 @run(ptr %program, ptr %pool) #0 {
entry:
  %error.at = getelementptr %Program, ptr %program, i32 0, i32 6
  %error.v = load i64, ptr %error.at
  %error = inttoptr i64 %error.v to ptr
  store i64 0, ptr %error
  call void @patch(ptr %program)
  ; The workers serve one caller at a time; a second caller runs without them.
  %some = icmp ne ptr %pool, null
  br i1 %some, label %try, label %alone
try:
  %got = call i1 @borrow(ptr %pool)
  br i1 %got, label %together, label %alone
together:
  call void @sections(ptr %program, ptr %pool)
  call void @give_back(ptr %pool)
  br label %end
alone:
  call void @sections(ptr %program, ptr null)
  br label %end
end:
  %result = load i64, ptr %error
  ret i64 %result
}

attributes #0 = { nounwind }
