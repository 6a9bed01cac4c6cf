; The functions of a native library. They read tables that are generated for each
; library.
;
; A workspace starts with words: 0 a mark that `init` has run, 1 the number of sizes in
; use, 2 to 8 the bases of addresses in images, 9 the number of the processor with the
; selected programs, 10 the error block of a bad index, 16 its message. Then follow two
; words for each operand: first the addresses of all slots, then the slots, which
; contain
; the addresses of operands. States, padded rows, images and the arena follow.

; offset, words, offset of the program in it, offset in the stream
%Image = type { i64, i64, i64, i64 }
; rows, image of each run, offset of the arena, end, image of the calls that run once
%Size = type { i64, %Image, i64, i64, %Image }
; bytes of a row, offset of padded rows
%Operand = type { i64, i64 }
; offset in the weights, bytes, offsets of the value and of the next value, their slots
%State = type { i64, i64, i64, i64, i64, i64 }
; offset of a section, offset of the text, processor
%Problem = type { i64, i64, i64 }
; required bits of cpuid leaf 1 (ECX), of leaf 7 (EBX, ECX), and of subleaf 1 (EAX); the
; registers that the system must save
%Needs = type { i32, i32, i32, i32, i64 }

declare i64 @run(ptr, ptr)
declare ptr @helpers()
declare i64 @processor()

define i32 @${PREFIX}_abi() #1 {
  ret i32 $ABI
}

; Store a number, if the address is not null.
define internal void @count(ptr %to, i32 %number) #0 {
entry:
  %none = icmp eq ptr %to, null
  br i1 %none, label %end, label %tell
tell:
  store i32 %number, ptr %to
  br label %end
end:
  ret void
}

define ptr @${PREFIX}_inputs(ptr %count) #1 {
  call void @count(ptr %count, i32 $INPUTS)
  ret ptr @input.tensors
}

define ptr @${PREFIX}_outputs(ptr %count) #1 {
  call void @count(ptr %count, i32 $OUTPUTS)
  ret ptr @output.tensors
}

define ptr @${PREFIX}_batches(ptr %count) #1 {
  call void @count(ptr %count, i32 $SIZES)
  ret ptr @batches
}

define i32 @${PREFIX}_state_count() #1 {
  ret i32 $STATES
}

define $LONG @${PREFIX}_weights_size() #1 {
  ret $LONG $WEIGHTS_BYTES
}

define ptr @${PREFIX}_weights_sha256() #1 {
  ret ptr @weights.sha256
}

define $LONG @${PREFIX}_workspace_size(i64 %most) #1 {
entry:
  %negative = icmp slt i64 %most, 0
  br i1 %negative, label %none, label %some
none:
  ret $LONG 0
some:
  %count = call i64 @sizes_up_to(i64 %most)
  %last = sub i64 %count, 1
  %end.at = getelementptr %Size, ptr @sizes, i64 %last, i32 3
  %end.v = load i64, ptr %end.at
  ; The workspace is aligned by rounding its address up.
  %size = add i64 %end.v, 64
  %result = $SIZE_AS_LONG
  ret $LONG %result
}

; Return the number of sizes with up to `most` rows, at least 1; all sizes for 0.
define internal i64 @sizes_up_to(i64 %most) #0 {
entry:
  %all = icmp sle i64 %most, 0
  br i1 %all, label %every, label %next
every:
  ret i64 $SIZES
next:
  %k = phi i64 [ 1, %entry ], [ %k.next, %take ]
  %more = icmp slt i64 %k, $SIZES
  br i1 %more, label %look, label %end
look:
  %rows.at = getelementptr %Size, ptr @sizes, i64 %k, i32 0
  %rows = load i64, ptr %rows.at
  %fits = icmp sle i64 %rows, %most
  br i1 %fits, label %take, label %end
take:
  %k.next = add i64 %k, 1
  br label %next
end:
  ret i64 %k
}

; --- memory ----------------------------------------------------------------------------

define internal ptr @rounded_up(ptr %given) #0 {
  %number = ptrtoint ptr %given to i64
  %more = add i64 %number, 63
  %start = and i64 %more, -64
  %address = inttoptr i64 %start to ptr
  ret ptr %address
}

; Return the aligned workspace; null if `init` has not run.
define internal ptr @ready(ptr %given) #0 {
entry:
  %none = icmp eq ptr %given, null
  br i1 %none, label %no, label %look
look:
  %w = call ptr @rounded_up(ptr %given)
  %mark = load i64, ptr %w
  %number = ptrtoint ptr %w to i64
  %wanted = xor i64 %number, $MARK
  %same = icmp eq i64 %mark, %wanted
  br i1 %same, label %yes, label %no
yes:
  ret ptr %w
no:
  ret ptr null
}

define internal void @copy(ptr %to, ptr %from, i64 %bytes) #0 {
entry:
  %whole = and i64 %bytes, -8
  br label %word
word:
  %k = phi i64 [ 0, %entry ], [ %k.next, %word.do ]
  %more = icmp ult i64 %k, %whole
  br i1 %more, label %word.do, label %byte
word.do:
  %from.word = getelementptr i8, ptr %from, i64 %k
  %to.word = getelementptr i8, ptr %to, i64 %k
  %word.v = load i64, ptr %from.word, align 1
  store i64 %word.v, ptr %to.word, align 1
  %k.next = add i64 %k, 8
  br label %word
byte:
  %b = phi i64 [ %whole, %word ], [ %b.next, %byte.do ]
  %b.more = icmp ult i64 %b, %bytes
  br i1 %b.more, label %byte.do, label %end
byte.do:
  %from.byte = getelementptr i8, ptr %from, i64 %b
  %to.byte = getelementptr i8, ptr %to, i64 %b
  %byte.v = load i8, ptr %from.byte
  store i8 %byte.v, ptr %to.byte
  %b.next = add i64 %b, 1
  br label %byte
end:
  ret void
}

; Write an image to a workspace. Each byte of the stream has seven bits of a number,
; lowest
; bits first. The three lowest bits of a number are the base of the word.
define internal void @unpack(ptr %image, ptr %w) #0 {
entry:
  %image.v = load %Image, ptr %image
  %offset = extractvalue %Image %image.v, 0
  %count = extractvalue %Image %image.v, 1
  %start = extractvalue %Image %image.v, 3
  %to = getelementptr i8, ptr %w, i64 %offset
  %to.number = ptrtoint ptr %to to i64
  %bases = getelementptr i64, ptr %w, i64 2
  %image.base = getelementptr i64, ptr %bases, i64 1
  store i64 %to.number, ptr %image.base
  %from.first = getelementptr i8, ptr @stream, i64 %start
  br label %word
word:
  %k = phi i64 [ 0, %entry ], [ %k.next, %put ]
  %from.word = phi ptr [ %from.first, %entry ], [ %from.next, %put ]
  %more = icmp slt i64 %k, %count
  br i1 %more, label %byte, label %end
byte:
  %from = phi ptr [ %from.word, %word ], [ %from.next, %byte ]
  %shift = phi i64 [ 0, %word ], [ %shift.next, %byte ]
  %sum = phi i64 [ 0, %word ], [ %sum.next, %byte ]
  %byte.v = load i8, ptr %from
  %low = and i8 %byte.v, 127
  %low.long = zext i8 %low to i64
  %part = shl i64 %low.long, %shift
  %sum.next = or i64 %sum, %part
  %shift.next = add i64 %shift, 7
  %from.next = getelementptr i8, ptr %from, i64 1
  %goes.on = icmp slt i8 %byte.v, 0
  br i1 %goes.on, label %byte, label %decide
decide:
  %base = and i64 %sum.next, 7
  %folded = lshr i64 %sum.next, 3
  %half = lshr i64 %folded, 1
  %sign = and i64 %folded, 1
  %mask = sub i64 0, %sign
  %value = xor i64 %half, %mask
  switch i64 %base, label %address [ i64 2, label %kernel
                                     i64 7, label %wide ]
address:
  %base.at = getelementptr i64, ptr %bases, i64 %base
  %base.v = load i64, ptr %base.at
  %address.v = add i64 %base.v, %value
  br label %put
kernel:
  %kernel.at = getelementptr ptr, ptr @kernels, i64 %value
  %kernel.p = load ptr, ptr %kernel.at
  %kernel.v = ptrtoint ptr %kernel.p to i64
  br label %put
wide:
  %wide.at = getelementptr i64, ptr @wide, i64 %value
  %wide.v = load i64, ptr %wide.at
  br label %put
put:
  %word.v = phi i64 [ %address.v, %address ], [ %kernel.v, %kernel ], [ %wide.v, %wide ]
  %word.at = getelementptr i64, ptr %to, i64 %k
  store i64 %word.v, ptr %word.at
  %k.next = add i64 %k, 1
  br label %word
end:
  ret void
}

; --- init ------------------------------------------------------------------------------

define i32 @${PREFIX}_init(ptr %given, ptr %weights.given, i64 %most) #1 {
entry:
  %none = icmp eq ptr %given, null
  %negative = icmp slt i64 %most, 0
  %wrong = or i1 %none, %negative
  br i1 %wrong, label %bad, label %compare
bad:
  ret i32 1
compare:
  %processor = call i64 @processor()
  %supported = icmp sge i64 %processor, 0
  br i1 %supported, label %find, label %unsupported
unsupported:
  ret i32 7
find:
  %own = icmp eq ptr %weights.given, null
  %weights = select i1 %own, ptr $EMBEDDED, ptr %weights.given
  %lacking = icmp eq ptr %weights, null
  %wanted = icmp ne i64 $WEIGHTS_BYTES, 0
  %without = and i1 %lacking, %wanted
  br i1 %without, label %no.weights, label %lay.out
no.weights:
  ret i32 5
lay.out:
  %w = call ptr @rounded_up(ptr %given)
  %count = call i64 @sizes_up_to(i64 %most)
  store i64 0, ptr %w
  %message = getelementptr i64, ptr %w, i64 16
  store i8 0, ptr %message
  %count.at = getelementptr i64, ptr %w, i64 1
  store i64 %count, ptr %count.at
  %processor.at = getelementptr i64, ptr %w, i64 9
  store i64 %processor, ptr %processor.at
  %last = sub i64 %count, 1
  %last.at = call ptr @size(ptr %w, i64 %last)
  %arena.at = getelementptr %Size, ptr %last.at, i64 0, i32 2
  %arena = load i64, ptr %arena.at
  %w.number = ptrtoint ptr %w to i64
  %arena.number = add i64 %w.number, %arena
  %weights.number = ptrtoint ptr %weights to i64
  %constants.number = ptrtoint ptr @constants to i64
  %base.0 = getelementptr i64, ptr %w, i64 2
  store i64 0, ptr %base.0
  %base.3 = getelementptr i64, ptr %w, i64 5
  store i64 %arena.number, ptr %base.3
  %base.4 = getelementptr i64, ptr %w, i64 6
  store i64 %weights.number, ptr %base.4
  %base.5 = getelementptr i64, ptr %w, i64 7
  store i64 %constants.number, ptr %base.5
  %base.6 = getelementptr i64, ptr %w, i64 8
  store i64 %w.number, ptr %base.6
  br label %zero
zero:
  %z = phi i64 [ 0, %lay.out ], [ %z.next, %zero.do ]
  %z.more = icmp slt i64 %z, $ZERO_BYTES
  br i1 %z.more, label %zero.do, label %place
zero.do:
  %z.offset = add i64 %z, $ZEROS
  %z.at = getelementptr i8, ptr %w, i64 %z.offset
  store i64 0, ptr %z.at
  %z.next = add i64 %z, 8
  br label %zero
place:
  %p = phi i64 [ 0, %zero ], [ %p.next, %place.do ]
  %p.more = icmp slt i64 %p, $PLACES
  br i1 %p.more, label %place.do, label %size
place.do:
  %place.at = call ptr @place(ptr %w, i64 %p)
  %place.number = ptrtoint ptr %place.at to i64
  %p.word = add i64 %p, $FIRST_PLACE
  %known.at = getelementptr i64, ptr %w, i64 %p.word
  store i64 %place.number, ptr %known.at
  %p.next = add i64 %p, 1
  br label %place
size:
  %s = phi i64 [ 0, %place ], [ %s.next, %size.do ]
  %s.more = icmp slt i64 %s, %count
  br i1 %s.more, label %size.do, label %done
size.do:
  %size.at = call ptr @size(ptr %w, i64 %s)
  %image.at = getelementptr %Size, ptr %size.at, i64 0, i32 1
  call void @unpack(ptr %image.at, ptr %w)
  %once.at = getelementptr %Size, ptr %size.at, i64 0, i32 4
  call void @unpack(ptr %once.at, ptr %w)
  call i64 @enter(ptr %once.at, ptr %w)
  %s.next = add i64 %s, 1
  br label %size
done:
  call void @start(ptr %w)
  %mark = xor i64 %w.number, $MARK
  store i64 %mark, ptr %w
  ret i32 0
}

; Return a size of the selected processor; the table is ordered by processor.
define internal ptr @size(ptr %w, i64 %number) #0 {
  %processor.at = getelementptr i64, ptr %w, i64 9
  %processor = load i64, ptr %processor.at
  %first = mul i64 %processor, $SIZES
  %k = add i64 %first, %number
  %at = getelementptr %Size, ptr @sizes, i64 %k
  ret ptr %at
}

; Return the slot with the address of an operand.
define internal ptr @place(ptr %w, i64 %number) #0 {
  %from = add i64 %number, $FIRST_PLACE
  %word = add i64 %from, $PLACES
  %at = getelementptr i64, ptr %w, i64 %word
  ret ptr %at
}

; Set all states to their initial values.
define internal void @start(ptr %w) #0 {
entry:
  %weights.at = getelementptr i64, ptr %w, i64 6
  %weights.number = load i64, ptr %weights.at
  %weights = inttoptr i64 %weights.number to ptr
  br label %next
next:
  %k = phi i64 [ 0, %entry ], [ %k.next, %do ]
  %more = icmp slt i64 %k, $STATES
  br i1 %more, label %do, label %end
do:
  %state.at = getelementptr %State, ptr @states, i64 %k
  %state = load %State, ptr %state.at
  %stored = extractvalue %State %state, 0
  %bytes = extractvalue %State %state, 1
  %value.offset = extractvalue %State %state, 2
  %next.offset = extractvalue %State %state, 3
  %value.place = extractvalue %State %state, 4
  %next.place = extractvalue %State %state, 5
  %from = getelementptr i8, ptr %weights, i64 %stored
  %value = getelementptr i8, ptr %w, i64 %value.offset
  call void @copy(ptr %value, ptr %from, i64 %bytes)
  %value.number = ptrtoint ptr %value to i64
  %value.at = call ptr @place(ptr %w, i64 %value.place)
  store i64 %value.number, ptr %value.at
  %following = getelementptr i8, ptr %w, i64 %next.offset
  %following.number = ptrtoint ptr %following to i64
  %following.at = call ptr @place(ptr %w, i64 %next.place)
  store i64 %following.number, ptr %following.at
  %k.next = add i64 %k, 1
  br label %next
end:
  ret void
}

define i32 @${PREFIX}_reset(ptr %given) #1 {
entry:
  %w = call ptr @ready(ptr %given)
  %none = icmp eq ptr %w, null
  br i1 %none, label %bad, label %do
bad:
  ret i32 2
do:
  call void @start(ptr %w)
  ret i32 0
}

; --- run -------------------------------------------------------------------------------

define i32 @${PREFIX}_run(ptr %given, i64 %n, ptr %inputs, ptr %outputs) #1 {
entry:
  %w = call ptr @ready(ptr %given)
  %none = icmp eq ptr %w, null
  br i1 %none, label %not.ready, label %check
not.ready:
  ret i32 2
check:
  %negative = icmp slt i64 %n, 0
  %no.inputs = call i1 @lacks(ptr %inputs, i64 $INPUTS)
  %no.outputs = call i1 @lacks(ptr %outputs, i64 $OUTPUTS)
  %some = or i1 %negative, %no.inputs
  %bad = or i1 %some, %no.outputs
  br i1 %bad, label %refuse, label %compare
refuse:
  ret i32 1
compare:
  %nothing = icmp eq i64 %n, 0
  %empty = and i1 %nothing, $NEEDS_ROWS
  br i1 %empty, label %no.size, label %next
next:
  %done = phi i64 [ 0, %compare ], [ %done.next, %advance ]
  %rest = sub i64 %n, %done
  %more = icmp sgt i64 %rest, 0
  br i1 %more, label %choose, label %end
choose:
  %number = call i64 @chosen(ptr %w, i64 %rest)
  %is.none = icmp slt i64 %number, 0
  br i1 %is.none, label %no.size, label %begin
no.size:
  ret i32 3
begin:
  %size.at = call ptr @size(ptr %w, i64 %number)
  %rows = load i64, ptr %size.at
  %pads = icmp slt i64 %rest, %rows
  %used = select i1 %pads, i64 %rest, i64 %rows
  call void @bring(ptr %w, ptr %inputs, i64 0, i64 $INPUTS, i64 %done, i64 %used, i64 %rows)
  call void @bring(ptr %w, ptr %outputs, i64 $INPUTS, i64 $OUTPUTS, i64 %done, i64 %used, i64 %rows)
  %image.at = getelementptr %Size, ptr %size.at, i64 0, i32 1
  %flag = call i64 @enter(ptr %image.at, ptr %w)
  %fine = icmp eq i64 %flag, 0
  br i1 %fine, label %finish, label %failed
failed:
  call void @explain(ptr %w)
  ret i32 4
finish:
  br i1 %pads, label %fetch, label %advance
fetch:
  call void @take_back(ptr %w, ptr %outputs, i64 %done, i64 %used)
  br label %advance
advance:
  call void @swap(ptr %w)
  %done.next = add i64 %done, %used
  br label %next
end:
  ret i32 0
}

; Run the program of an image; a nonzero result reports a bad index.
define internal i64 @enter(ptr %image, ptr %w) #0 {
  %image.v = load %Image, ptr %image
  %offset = extractvalue %Image %image.v, 0
  %header = extractvalue %Image %image.v, 2
  %program.offset = add i64 %offset, %header
  %program = getelementptr i8, ptr %w, i64 %program.offset
  %pool = call ptr @helpers()
  %flag = call i64 @run(ptr %program, ptr %pool)
  ret i64 %flag
}

; Return whether a table has a null address.
define internal i1 @lacks(ptr %table, i64 %count) #0 {
entry:
  %none = icmp eq ptr %table, null
  br i1 %none, label %yes, label %next
next:
  %k = phi i64 [ 0, %entry ], [ %k.next, %look ]
  %more = icmp slt i64 %k, %count
  br i1 %more, label %look, label %no
look:
  %at = getelementptr ptr, ptr %table, i64 %k
  %address = load ptr, ptr %at
  %k.next = add i64 %k, 1
  %missing = icmp eq ptr %address, null
  br i1 %missing, label %yes, label %next
yes:
  ret i1 true
no:
  ret i1 false
}

; Return the number of the largest size of up to `rest` rows, otherwise the smallest
; size.
; If only whole batches are supported: the size of exactly `rest` rows, otherwise -1.
define internal i64 @chosen(ptr %w, i64 %rest) #0 {
entry:
  %count.at = getelementptr i64, ptr %w, i64 1
  %count = load i64, ptr %count.at
  br label %next
next:
  %left = phi i64 [ %count, %entry ], [ %k, %look ]
  %k = sub i64 %left, 1
  %none = icmp slt i64 %k, 0
  br i1 %none, label %smallest, label %look
look:
  %rows.at = getelementptr %Size, ptr @sizes, i64 %k, i32 0
  %rows = load i64, ptr %rows.at
  %fits = icmp $FITS i64 %rows, %rest
  br i1 %fits, label %found, label %next
found:
  ret i64 %k
smallest:
  ret i64 $OTHERWISE
}

; Set the addresses of operands: in the caller's arrays, or padded in the workspace. The
; last row of a padded input is repeated.
define internal void @bring(ptr %w, ptr %table, i64 %first, i64 %count, i64 %done, i64 %used, i64 %rows) #0 {
entry:
  %pads = icmp slt i64 %used, %rows
  %are.inputs = icmp eq i64 %first, 0
  %copies = and i1 %pads, %are.inputs
  br label %next
next:
  %k = phi i64 [ 0, %entry ], [ %k.next, %after ]
  %more = icmp slt i64 %k, %count
  br i1 %more, label %do, label %end
do:
  %number = add i64 %first, %k
  %operand.at = getelementptr %Operand, ptr @operands, i64 %number
  %operand = load %Operand, ptr %operand.at
  %row.bytes = extractvalue %Operand %operand, 0
  %padded.offset = extractvalue %Operand %operand, 1
  %given.at = getelementptr ptr, ptr %table, i64 %k
  %given = load ptr, ptr %given.at
  %skipped = mul i64 %done, %row.bytes
  %own = getelementptr i8, ptr %given, i64 %skipped
  %padded = getelementptr i8, ptr %w, i64 %padded.offset
  %chosen = select i1 %pads, ptr %padded, ptr %own
  %chosen.number = ptrtoint ptr %chosen to i64
  %place = call ptr @place(ptr %w, i64 %number)
  store i64 %chosen.number, ptr %place
  br i1 %copies, label %row, label %after
row:
  %r = phi i64 [ 0, %do ], [ %r.next, %row.do ]
  %r.more = icmp slt i64 %r, %rows
  br i1 %r.more, label %row.do, label %after
row.do:
  %last = sub i64 %used, 1
  %exists = icmp slt i64 %r, %last
  %source = select i1 %exists, i64 %r, i64 %last
  %from.offset = mul i64 %source, %row.bytes
  %to.offset = mul i64 %r, %row.bytes
  %from = getelementptr i8, ptr %own, i64 %from.offset
  %to = getelementptr i8, ptr %padded, i64 %to.offset
  call void @copy(ptr %to, ptr %from, i64 %row.bytes)
  %r.next = add i64 %r, 1
  br label %row
after:
  %k.next = add i64 %k, 1
  br label %next
end:
  ret void
}

; Copy the rows of padded outputs to the caller's arrays.
define internal void @take_back(ptr %w, ptr %outputs, i64 %done, i64 %used) #0 {
entry:
  br label %next
next:
  %k = phi i64 [ 0, %entry ], [ %k.next, %do ]
  %more = icmp slt i64 %k, $OUTPUTS
  br i1 %more, label %do, label %end
do:
  %number = add i64 $INPUTS, %k
  %operand.at = getelementptr %Operand, ptr @operands, i64 %number
  %operand = load %Operand, ptr %operand.at
  %row.bytes = extractvalue %Operand %operand, 0
  %padded.offset = extractvalue %Operand %operand, 1
  %given.at = getelementptr ptr, ptr %outputs, i64 %k
  %given = load ptr, ptr %given.at
  %skipped = mul i64 %done, %row.bytes
  %own = getelementptr i8, ptr %given, i64 %skipped
  %padded = getelementptr i8, ptr %w, i64 %padded.offset
  %bytes = mul i64 %used, %row.bytes
  call void @copy(ptr %own, ptr %padded, i64 %bytes)
  %k.next = add i64 %k, 1
  br label %next
end:
  ret void
}

; Exchange the values and the next values of states.
define internal void @swap(ptr %w) #0 {
entry:
  br label %next
next:
  %k = phi i64 [ 0, %entry ], [ %k.next, %do ]
  %more = icmp slt i64 %k, $STATES
  br i1 %more, label %do, label %end
do:
  %value.at = getelementptr %State, ptr @states, i64 %k, i32 4
  %value.place = load i64, ptr %value.at
  %next.at = getelementptr %State, ptr @states, i64 %k, i32 5
  %next.place = load i64, ptr %next.at
  %first = call ptr @place(ptr %w, i64 %value.place)
  %second = call ptr @place(ptr %w, i64 %next.place)
  %first.v = load i64, ptr %first
  %second.v = load i64, ptr %second
  store i64 %second.v, ptr %first
  store i64 %first.v, ptr %second
  %k.next = add i64 %k, 1
  br label %next
end:
  ret void
}

; --- messages --------------------------------------------------------------------------

; Write the message of a bad index from the text of its section. Bytes 1 and 2 of the
; text
; are placeholders for the index and its limit.
define internal void @explain(ptr %w) #0 {
entry:
  %index.at = getelementptr i64, ptr %w, i64 11
  %index = load i64, ptr %index.at
  %limit.at = getelementptr i64, ptr %w, i64 12
  %limit = load i64, ptr %limit.at
  %section.at = getelementptr i64, ptr %w, i64 13
  %section = load i64, ptr %section.at
  %w.number = ptrtoint ptr %w to i64
  %offset = sub i64 %section, %w.number
  %message = getelementptr i64, ptr %w, i64 16
  %processor.at = getelementptr i64, ptr %w, i64 9
  %processor = load i64, ptr %processor.at
  br label %next
next:
  %k = phi i64 [ 0, %entry ], [ %k.next, %look ]
  %more = icmp slt i64 %k, $PROBLEMS
  br i1 %more, label %look, label %write
look:
  %where.at = getelementptr %Problem, ptr @problems, i64 %k, i32 0
  %where = load i64, ptr %where.at
  %k.next = add i64 %k, 1
  %of.at = getelementptr %Problem, ptr @problems, i64 %k, i32 2
  %of = load i64, ptr %of.at
  %is.there = icmp eq i64 %where, %offset
  %is.used = icmp eq i64 %of, %processor
  %same = and i1 %is.there, %is.used
  br i1 %same, label %found, label %next
found:
  %start.at = getelementptr %Problem, ptr @problems, i64 %k, i32 1
  %start.v = load i64, ptr %start.at
  br label %write
write:
  %start = phi i64 [ 0, %next ], [ %start.v, %found ]
  %text = getelementptr i8, ptr @problem.texts, i64 %start
  br label %byte
byte:
  %from = phi ptr [ %text, %write ], [ %from.next, %literal ], [ %from.next, %number ]
  %to = phi ptr [ %message, %write ], [ %to.next, %literal ], [ %to.after, %number ]
  %byte.v = load i8, ptr %from
  %from.next = getelementptr i8, ptr %from, i64 1
  switch i8 %byte.v, label %literal [ i8 0, label %end
                                      i8 1, label %number
                                      i8 2, label %number ]
literal:
  store i8 %byte.v, ptr %to
  %to.next = getelementptr i8, ptr %to, i64 1
  br label %byte
number:
  %is.index = icmp eq i8 %byte.v, 1
  %number.v = select i1 %is.index, i64 %index, i64 %limit
  %to.after = call ptr @decimal(ptr %to, i64 %number.v)
  br label %byte
end:
  store i8 0, ptr %to
  ret void
}

; Write an integer; return its end.
define internal ptr @decimal(ptr %to, i64 %number) #0 {
entry:
  %digits = alloca [24 x i8]
  %negative = icmp slt i64 %number, 0
  %opposite = sub i64 0, %number
  %size = select i1 %negative, i64 %opposite, i64 %number
  br i1 %negative, label %sign, label %digit
sign:
  store i8 45, ptr %to
  %after.sign = getelementptr i8, ptr %to, i64 1
  br label %digit
digit:
  %begin = phi ptr [ %to, %entry ], [ %after.sign, %sign ], [ %begin, %digit ]
  %left = phi i64 [ %size, %entry ], [ %size, %sign ], [ %left.next, %digit ]
  %k = phi i64 [ 24, %entry ], [ 24, %sign ], [ %k.next, %digit ]
  %left.next = udiv i64 %left, 10
  %tens = mul i64 %left.next, 10
  %value = sub i64 %left, %tens
  %value.byte = trunc i64 %value to i8
  %character = add i8 %value.byte, 48
  %k.next = sub i64 %k, 1
  %at = getelementptr i8, ptr %digits, i64 %k.next
  store i8 %character, ptr %at
  %more = icmp ne i64 %left.next, 0
  br i1 %more, label %digit, label %out
out:
  %count = sub i64 24, %k.next
  call void @copy(ptr %begin, ptr %at, i64 %count)
  %end = getelementptr i8, ptr %begin, i64 %count
  ret ptr %end
}

define ptr @${PREFIX}_message(ptr %given, i32 %status) #1 {
entry:
  %is.index = icmp eq i32 %status, 4
  br i1 %is.index, label %own, label %general
own:
  %w = call ptr @ready(ptr %given)
  %none = icmp eq ptr %w, null
  br i1 %none, label %general, label %written
written:
  %message = getelementptr i64, ptr %w, i64 16
  %first = load i8, ptr %message
  %empty = icmp eq i8 %first, 0
  br i1 %empty, label %general, label %tell
tell:
  ret ptr %message
general:
  %known = icmp ult i32 %status, $STATUSES
  %number = select i1 %known, i32 %status, i32 $STATUSES
  %at = getelementptr ptr, ptr @statuses, i32 %number
  %text = load ptr, ptr %at
  ret ptr %text
}

attributes #0 = { nounwind }
